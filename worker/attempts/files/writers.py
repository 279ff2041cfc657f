"""Finds out which files a process has open for writing, as far as this one may see.

The kernel tells it by a lease: it grants one for reading only while nobody has the file open for writing, be it by a
descriptor or a mapping. Where a file system has no leases, the descriptors of this user's processes are searched.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
import errno
import fcntl
import os
from pathlib import Path
import signal
from typing import BinaryIO

from torchyard.contract.errors import DataError
from torchyard.host.untrusted import open_inside
from worker.host.looks import Match, Parts

MOST_LOOKED_AT = 50_000
"""Processes and descriptors that one search looks at."""
_WRITABLE = frozenset({os.O_WRONLY, os.O_RDWR})


@dataclass(frozen=True)
class Writers:
    """What is known about who writes files."""

    written: set[Parts]
    """Those that a process has open for writing, or of which that is not known now."""
    unknown: set[Parts]
    """Those of other users, of which nobody can tell. They may be open for writing or not."""


def open_for_writing(root: Path, matches: Iterable[Match]) -> Writers:
    """Looks who has the files open for writing, which were found below `root`."""
    writers = Writers(set(), set())
    leaseless: dict[tuple[int, int], Parts] = {}
    for match in matches:
        use = _find_use(root, match)
        if use is _Use.NO_LEASES:
            leaseless[match.status.st_dev, match.status.st_ino] = match.parts
        elif use is _Use.WRITTEN:
            writers.written.add(match.parts)
        elif use is _Use.OF_ANOTHER_USER:
            writers.unknown.add(match.parts)
    writers.written.update(_search(leaseless) if leaseless else ())
    return writers


class _Use(Enum):
    WRITTEN = auto()
    CLOSED = auto()
    OF_ANOTHER_USER = auto()
    NO_LEASES = auto()


def _find_use(root: Path, match: Match) -> _Use:
    try:
        file = open_inside(root, *match.parts, names=match.status.st_nlink)
    except (DataError, OSError):
        return _Use.CLOSED  # whoever copies it says why it cannot be read
    if file is None:
        return _Use.CLOSED
    with file:
        return _ask_by_lease(file)


def _ask_by_lease(file: BinaryIO) -> _Use:
    try:
        # The signal by which the kernel asks for the lease back is one that does nothing: SIGIO would end this process.
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        if error.errno == errno.EAGAIN:
            return _Use.WRITTEN
        return _Use.OF_ANOTHER_USER if error.errno in {errno.EACCES, errno.EPERM} else _Use.NO_LEASES
    return _Use.CLOSED


def _search(wanted: Mapping[tuple[int, int], Parts]) -> set[Parts]:
    """Looks once at the descriptors of this user's processes. Returns all of `wanted` if there are too many of them."""
    written: set[Parts] = set()
    for count, descriptor in enumerate(_descriptors()):
        if count >= MOST_LOOKED_AT:
            return set(wanted.values())
        parts = None if descriptor is None else wanted.get(_identity(descriptor))
        if descriptor is not None and parts is not None and _is_writable(descriptor):
            written.add(parts)
    return written


def _descriptors() -> Iterator[Path | None]:
    """Yields each descriptor as its path in /proc, and None for each process."""
    with os.scandir("/proc") as processes:
        for process in processes:
            if not process.name.isdecimal():
                continue
            yield None
            try:
                with os.scandir(f"{process.path}/fd") as descriptors:
                    for descriptor in descriptors:
                        yield Path(descriptor.path)
            except OSError:  # it has ended, or is another user's
                continue


def _identity(descriptor: Path) -> tuple[int, int]:
    try:
        status = descriptor.stat()  # asks for the open file, not for what its name is now
    except OSError:
        return -1, -1
    return status.st_dev, status.st_ino


def _is_writable(descriptor: Path) -> bool:
    try:
        lines = (descriptor.parent.parent / "fdinfo" / descriptor.name).read_text().splitlines()
    except OSError:
        return False
    flags = next((int(line.split()[1], 8) for line in lines if line.startswith("flags:")), 0)
    return flags & os.O_ACCMODE in _WRITABLE
