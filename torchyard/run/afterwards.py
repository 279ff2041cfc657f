"""What a rank may still say and do when its program has done its work."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torchyard.contract.attempts.rundir import RunDir
from torchyard.run.agreement import StopAgreement
from torchyard.run.eventlog import EventLog


class StopRequested(BaseException):
    """A stop, where the program may leave at any time. No error: handlers of errors let it pass."""


@dataclass
class Afterwards:
    """Outside the service it does nothing, and nobody asks to stop."""

    run: RunDir | None
    events: EventLog | None
    """Of rank 0 alone."""
    agreement: StopAgreement | None
    _interrupts: bool = False

    @contextmanager
    def interrupted_by_a_stop(self) -> Generator[Callable[[], None]]:
        """A context for what the program may leave out, which only the main thread may enter.

        A stop raises StopRequested at once, and at each call of what the context returns. The program has finished all
        the same, and no later attempt repeats its work.
        """
        self._raise_if_late()
        self._interrupts = True
        try:
            yield self._raise_if_late
        finally:
            self._interrupts = False

    def stop(self) -> None:
        """Raises StopRequested within that context. The handler of SIGTERM calls it."""
        if self._interrupts:
            raise StopRequested

    @property
    def checkpoints(self) -> Path | None:
        """The folder of the checkpoints that this attempt has published. None outside the service."""
        return None if self.run is None else self.run.checkpoints

    def remeasured(self, name: str, metrics: Mapping[str, float], *, attempt: int | None = None) -> None:
        """Records what a checkpoint measures when it is evaluated again. `attempt`: an earlier one that saved it."""
        if self.events is not None:
            self.events.remeasured(name, metrics, attempt=attempt)

    def keep_alive(self) -> None:
        """Says that the program goes on, where it has nothing to report: it does not hang."""
        if self.events is not None:
            self.events.touch()

    def _raise_if_late(self) -> None:
        if self.agreement is not None and self.agreement.comes_late:
            raise StopRequested
