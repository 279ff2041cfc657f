"""Asks the ranks of an attempt for the stacks of their threads, and reads what they wrote."""

from collections.abc import Callable
import os
from pathlib import Path
import re

from torchyard.contract.records import ProcessIdentity
from torchyard.contract.rundir import RunDir
from torchyard.contract.stacks import STACKS_SIGNAL
from torchyard.contract.text import storable
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


def request_stacks(run: RunDir, supervisor: ProcessIdentity, *, world_size: int) -> Callable[[], list[RankStacks]]:
    """Signals every rank that runs. Returns a function that reads what each rank has written since, in their order."""
    files = [run.stacks / f"{rank}.txt" for rank in range(world_size)]
    before = [_size(file) for file in files]
    found = [*process.descendants(supervisor.pid), *strictness.recorded_processes(run)]
    ranks = running_ranks(run, found, world_size=world_size)
    if not process.is_alive(supervisor):  # checked last: until here, no other process can have had its pid
        ranks = {}
    send = strictness.sender(run)
    obstacles = [_signal(ranks.get(rank), send) for rank in range(world_size)]
    limit = min(_LIMIT, _TOTAL_LIMIT // world_size)

    def read() -> list[RankStacks]:
        return [
            _read(file, start, limit) if obstacle is None else RankStacks(note=obstacle)
            for file, start, obstacle in zip(files, before, obstacles, strict=True)
        ]

    return read


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
