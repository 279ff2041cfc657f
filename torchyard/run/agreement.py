"""Ranks agree on the step at which all of them stop, without a collective in every step.

Each rank counts its calls, one for each step. A rank that has seen the request waits for its device in every later
call, and writes an acknowledgement. When all ranks have, rank 0, in its call number n, names call n + 1 as the last.

Why n + 1 is late enough: a rank reaches call n + 1 only after step n + 1 is complete on its device. That step needs an
all-reduce with rank 0, which rank 0 begins after its call n, in which it named the last call. So every rank that comes
to call n + 1 finds it named. Why n is too early: another rank may have returned from its call n already. Ranks without
a collective in their step may stop some calls apart. They never wait for each other.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
import os
from pathlib import Path
import time

from torchyard.contract.codec import Record
from torchyard.contract.records import ProcessIdentity
from torchyard.contract.rundir import RunDir
from torchyard.host.disk import FULL
from torchyard.host.identity import identity_of
from torchyard.host.recordfiles import write_record
from torchyard.host.untrusted import read_untrusted

POLL_S = 0.2


@dataclass(frozen=True, kw_only=True)
class _LastCall(Record):
    call: int


class StopAgreement:
    """One rank's part in the agreement. `synchronize` waits for this rank's device."""

    def __init__(self, run: RunDir, *, rank: int, world_size: int, synchronize: Callable[[], None]) -> None:
        self.told = False
        """Whether the program was ever told to stop: it may then leave before its work is done."""
        self._run = run
        self._rank = rank
        self._world_size = world_size
        self._synchronize = synchronize
        self._calls = 0
        self._requested = False
        self._acknowledged = False
        self._last_call: int | None = None
        self._checked_at = float("-inf")

    def request(self) -> None:
        """Notes a request to stop. Does nothing else, so that a signal handler may call it."""
        self._requested = True

    @property
    def requested(self) -> bool:
        """Whether this rank knows of a request. Raises OSError."""
        self.told |= self._is_requested()
        return self._requested

    def reached(self) -> bool:
        """Counts one call, and returns whether it is the last one. Raises OSError."""
        last = self._is_last()
        self.told |= last
        return last

    def another_has_failed(self) -> bool:
        """Whether another rank has ended before its program had done its work. Any thread may ask."""
        others = (rank for rank in range(self._world_size) if rank != self._rank)
        return any(self._has_ended(rank) and not os.path.lexists(self._run.finished(rank)) for rank in others)

    def _is_requested(self) -> bool:
        now = time.monotonic()
        if not self._requested and now - self._checked_at >= POLL_S:
            self._checked_at = now
            self._requested = os.path.lexists(self._run.stop)
        return self._requested

    def _is_last(self) -> bool:
        self._calls += 1
        if not self._is_requested():
            return False
        if self._world_size == 1:
            return True
        self._synchronize()
        self._acknowledge()
        if self._rank == 0 and self._last_call is None and self._all_acknowledged():
            self._name_last_call(self._calls + 1)
        if self._last_call is None:
            self._last_call = self._read_last_call()
        return (self._last_call is not None and self._calls >= self._last_call) or self._another_has_ended()

    def _acknowledge(self) -> None:
        if not self._acknowledged:
            with _ignore_full_disk():
                self._run.agreement.mkdir(exist_ok=True)
                _create(self._run.agreement / f"ack-{self._rank}")
                self._acknowledged = True

    def _all_acknowledged(self) -> bool:
        return all(os.path.lexists(self._run.agreement / f"ack-{rank}") for rank in range(self._world_size))

    def _name_last_call(self, call: int) -> None:
        with _ignore_full_disk():
            write_record(self._run.agreement / "at", _LastCall(call=call))

    def _read_last_call(self) -> int | None:
        last = read_untrusted(self._run.agreement / "at", _LastCall)
        return last.call if last is not None else None

    def _another_has_ended(self) -> bool:
        """Whether another rank has ended. There is no agreement without it: the launcher ends the ranks one by one."""
        now = time.monotonic()
        if self._last_call is not None or now - self._checked_at < POLL_S:
            return False
        self._checked_at = now
        return any(self._has_ended(rank) for rank in range(self._world_size) if rank != self._rank)

    def _has_ended(self, rank: int) -> bool:
        process = read_untrusted(self._run.ranks / f"{rank}.json", ProcessIdentity)
        return process is not None and identity_of(process.pid) != process


def _create(path: Path) -> None:
    """Creates an empty file, unless something has its name. Raises OSError."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


@contextmanager
def _ignore_full_disk() -> Generator[None]:
    """Ignores a full disk: the next call tries again."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
