"""Asks the ranks of an attempt for the stacks of their threads, and reads what they wrote."""

from collections.abc import Callable, Sequence
import os
from pathlib import Path
import re

from torchyard.contract.attempts.records import ProcessIdentity
from torchyard.contract.attempts.rundir import STACKS_SIGNAL, RunDir
from torchyard.contract.wire.text import storable
from torchyard.host.untrusted import read_tail
from worker.engines.base import RankStacks
from worker.engines.local.launchers import strictness
from worker.engines.local.supervisor.ranks import has_signal, running_ranks
from worker.host import process

_LIMIT = 1 << 16
"""The most bytes of one rank's stacks."""
_TOTAL_LIMIT = 1 << 20
"""The most bytes of all ranks' stacks."""
_NO_HANDLER = "cannot show its stacks: its program removed the handler"
_FRAMES_OF_SERVICE = re.compile(
    r'^  File "[^"\n]*/torchyard/run/rank\.py", line \d+ in _run\n(?:  File .*\n?)*', re.MULTILINE
)
"""The frames below the rank's program: a fork has those of the warm process, too."""


def request_stacks(run: RunDir, supervisor: ProcessIdentity, *, ranks: Sequence[int]) -> Callable[[], list[RankStacks]]:
    """Signals those of `ranks` that run. Returns a function that reads what each has written since, in their order."""
    read = written_since(run, ranks=ranks)
    processes = [*process.descendants(supervisor.pid), *strictness.recorded_processes(run)]
    running = running_ranks(run, processes, ranks=ranks)
    if not process.is_alive(supervisor):  # checked last: until here, no other process can have had its pid
        running = {}
    send = strictness.sender(run)
    obstacles = [_signal(running.get(rank), send) for rank in ranks]

    def answers() -> list[RankStacks]:
        return [
            answer if obstacle is None else RankStacks(note=obstacle)
            for answer, obstacle in zip(read(), obstacles, strict=True)
        ]

    return answers


def written_since(run: RunDir, *, ranks: Sequence[int]) -> Callable[[], list[RankStacks]]:
    """Returns a function that reads what each rank has written since this call, in their order. Signals none."""
    files = [run.stacks / f"{rank}.txt" for rank in ranks]
    before = [_size(file) for file in files]
    limit = min(_LIMIT, _TOTAL_LIMIT // max(1, len(ranks)))
    return lambda: [_read(file, start, limit) for file, start in zip(files, before, strict=True)]


def _signal(rank: ProcessIdentity | None, send: process.Send) -> str | None:
    """Signals a rank, or returns why it was not signalled. One that has no handler would be ended by the signal."""
    if rank is None:
        return "does not run"
    if process.is_stopped(rank):
        return "is stopped by a signal"
    try:
        if not has_signal(rank, "SigCgt", STACKS_SIGNAL):
            return _NO_HANDLER
        # A rank that blocks the signal would get each of them later.
        if not has_signal(rank, "ShdPnd", STACKS_SIGNAL) and not send(rank, STACKS_SIGNAL):
            return "does not run"
    except OSError as error:
        return f"cannot be asked: {error}"
    return None


def _read(file: Path, start: int, limit: int) -> RankStacks:
    raw = read_tail(file, limit, start=start)
    if not raw:
        return RankStacks()
    note = f"only the last {limit} bytes" if len(raw) == limit else None
    return RankStacks(_FRAMES_OF_SERVICE.sub("", storable(raw.decode("utf-8", "replace"))), note)


def _size(path: Path) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0
