"""Reads the table of the processes of this host from `/proc`."""

from collections.abc import Iterable
from dataclasses import dataclass
import os

from torchyard.contract.attempts.records import ProcessIdentity
from torchyard.host.identity import boot_id

TICKS = os.sysconf("SC_CLK_TCK")
"""Units of a start time a second."""


@dataclass(frozen=True)
class Process:
    """One line of the table. A zombie is in it too."""

    pid: int
    parent: int
    session: int
    state: bytes
    start_time: int
    seconds: float
    """Of processor time, that of the children it waited for included."""

    @property
    def running(self) -> bool:
        return self.state not in b"ZXx"

    @property
    def identity(self) -> ProcessIdentity:
        return ProcessIdentity(pid=self.pid, start_time=self.start_time, boot_id=boot_id())


def read_table() -> dict[int, Process]:
    """Returns all processes, by pid."""
    processes = (read_stat(int(entry.name)) for entry in os.scandir("/proc") if entry.name.isdecimal())
    return {process.pid: process for process in processes if process is not None}


def read_stat(pid: int) -> Process | None:
    """Returns the process that has `pid` now, or None."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123 a table has many, and a path costs more
            stat = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(b")")[2].split()
    seconds = sum(map(int, fields[11:15])) / TICKS
    return Process(pid, int(fields[1]), int(fields[3]), fields[0], int(fields[19]), seconds)


def descendants_of(table: dict[int, Process], roots: Iterable[int]) -> set[int]:
    """Returns the pids of all descendants of `roots`."""
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    descendants: set[int] = set()
    pending = list(roots)
    while pending:
        for child in children.get(pending.pop(), ()):
            if child not in descendants:
                descendants.add(child)
                pending.append(child)
    return descendants
