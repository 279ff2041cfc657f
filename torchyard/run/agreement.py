"""How the ranks agree on the step at which all of them stop, without a collective on every step.

Each rank counts its calls, one for each step. A rank that has seen the request waits for its device in every call from
then on, and acknowledges it. When all have, rank 0, in its call number n, names call n + 1 as the last one.

That margin is enough. A rank returns from call n + 1 only after step n + 1 is complete on its device, which takes rank
0's part in the step's all-reduce, which rank 0 begins after its call n: after it has named the last call. So whoever
comes to call n + 1 finds it named. And the margin is needed: in call n, another rank may have returned from its own
call n already. Ranks that no collective holds together may stop some calls apart; they never wait for each other.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
import os
from pathlib import Path
import time

from torchyard.contract.disk import FULL
from torchyard.contract.record import Record
from torchyard.contract.recordfiles import write_record
from torchyard.contract.records import ProcessIdentity
from torchyard.contract.rundir import RunDir
from torchyard.contract.untrusted import read_untrusted

POLL_S = 0.2


@dataclass(frozen=True, kw_only=True)
class _LastCall(Record):
    call: int


class StopAgreement:
    """One rank's part in it. `synchronize` waits for this rank's device."""

    def __init__(self, run: RunDir, *, rank: int, world_size: int, synchronize: Callable[[], None]) -> None:
        self.told = False
        """Whether the program has ever heard a yes: it may then leave its work for that."""
        self._run = run
        self._rank = rank
        self._world_size = world_size
        self._synchronize = synchronize
        self._calls = 0
        self._requested = False
        self._acknowledged = False
        self._last_call: int | None = None
        self._looked = float("-inf")

    def request(self) -> None:
        """A stop is asked for. Does nothing else, so a signal handler may call it."""
        self._requested = True

    @property
    def requested(self) -> bool:
        """Whether this rank knows of a request. Raises OSError."""
        self.told |= self._knows()
        return self._requested

    def reached(self) -> bool:
        """Counts one call, and says whether this is the last one. Raises OSError."""
        last = self._is_last()
        self.told |= last
        return last

    def _knows(self) -> bool:
        now = time.monotonic()
        if not self._requested and now - self._looked >= POLL_S:
            self._looked = now
            self._requested = os.path.lexists(self._run.stop)
        return self._requested

    def _is_last(self) -> bool:
        self._calls += 1
        if not self._knows():
            return False
        if self._world_size == 1:
            return True
        self._synchronize()
        self._acknowledge()
        if self._rank == 0 and self._last_call is None and self._all_acknowledged():
            self._name_last_call(self._calls + 1)
        if self._last_call is None:
            self._last_call = self._read_last_call()
        return (self._last_call is not None and self._calls >= self._last_call) or self._alone()

    def _acknowledge(self) -> None:
        if not self._acknowledged:
            with _unless_full():
                self._run.agreement.mkdir(exist_ok=True)
                _create(self._run.agreement / f"ack-{self._rank}")
                self._acknowledged = True

    def _all_acknowledged(self) -> bool:
        return all(os.path.lexists(self._run.agreement / f"ack-{rank}") for rank in range(self._world_size))

    def _name_last_call(self, call: int) -> None:
        with _unless_full():
            write_record(self._run.agreement / "at", _LastCall(call=call))

    def _read_last_call(self) -> int | None:
        last = read_untrusted(self._run.agreement / "at", _LastCall)
        return last.call if last is not None else None

    def _alone(self) -> bool:
        """Whether a rank is gone. With that one no agreement comes: the launcher is ending the others, one by one."""
        now = time.monotonic()
        if self._last_call is not None or now - self._looked < POLL_S:
            return False
        self._looked = now
        return any(self._is_gone(rank) for rank in range(self._world_size) if rank != self._rank)

    def _is_gone(self, rank: int) -> bool:
        process = read_untrusted(self._run.ranks / f"{rank}.json", ProcessIdentity)
        return process is not None and ProcessIdentity.of(process.pid) != process


def _create(path: Path) -> None:
    """An empty file, unless something has the name. Raises OSError."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


@contextmanager
def _unless_full() -> Generator[None]:
    """Where the disk is full, the next call tries again."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
