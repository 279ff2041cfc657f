"""The checkpoints of one rank on their way to the disk: one at a time, and one that a full disk refuses is kept."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
import time

from torchyard.contract.disk import FULL, insist

_AGAIN_S = 30.0  # between two tries while the program trains on
_PAUSE_S = 5.0  # between two tries at the end: each may fill the disk, on which others write, too


@dataclass(frozen=True)
class Unsaved:
    """A checkpoint that is not on the disk yet."""

    step: int
    put: Callable[[], None]
    """Writes it. Leaves nothing behind where it raises, and may be called again."""


class Saving:
    """Writes checkpoints. What a full disk refuses is no error: it waits in memory, for room or for the next one.

    Every other error is raised: at once, or, where a thread has met it, by the next call, once. `warn` is told of each
    checkpoint that waits.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="torchyard checkpoint")
        self._writing: tuple[Unsaved, Future[None]] | None = None
        self._refused: Unsaved | None = None
        self._next_try = 0.0

    def begin(self, make: Callable[[], Unsaved]) -> None:
        """Makes a checkpoint and has a thread write it. One that waits is given up for it."""
        self._settle()
        self._refused = None  # before there is another one in memory
        checkpoint = make()
        self._writing = checkpoint, self._thread.submit(checkpoint.put)

    def write(self, make: Callable[[], Unsaved], *, kept: Callable[[], Unsaved]) -> None:
        """Makes a checkpoint and writes it. One that waits is given up for it. `kept` makes the one that waits where
        this one is refused: what that holds does not change any more."""
        self._settle()
        self._refused = None
        try:
            make().put()
        except OSError as error:
            if error.errno not in FULL:
                raise
            self._refuse(kept(), error)

    def look(self) -> None:
        """Takes note of what the thread has done, and has it try again now and then. Never waits."""
        if self._writing is not None:
            if self._writing[1].done():
                self._settle()
        elif self._refused is not None and time.monotonic() >= self._next_try:
            self._writing = self._refused, self._thread.submit(self._refused.put)

    def finish(self, *, seconds: float, on_refusal: Callable[[OSError], object]) -> None:
        """Returns when the newest checkpoint is on the disk, for which it may wait.

        Raises the OSError of a disk that is still full after `seconds`; then that checkpoint is given up. `on_refusal`
        is told each of them before.
        """
        self._settle()
        last, self._refused = self._refused, None
        if last is not None:
            insist(last.put, seconds=seconds, on_refusal=on_refusal, pause_s=_PAUSE_S)

    def _settle(self) -> None:
        """Waits for the thread."""
        if self._writing is None:
            return
        (checkpoint, future), self._writing = self._writing, None
        again, self._refused = checkpoint is self._refused, None
        try:
            future.result()
        except OSError as error:
            if error.errno not in FULL:
                raise
            self._refuse(checkpoint, error, again=again)

    def _refuse(self, checkpoint: Unsaved, error: OSError, *, again: bool = False) -> None:
        self._refused = checkpoint
        self._next_try = time.monotonic() + _AGAIN_S
        if not again:
            self._warn(
                f"the checkpoint of step {checkpoint.step} cannot be written: {error}. Training goes on, earlier "
                "checkpoints are whole, and it waits in memory for room, or until the next one takes its place"
            )
