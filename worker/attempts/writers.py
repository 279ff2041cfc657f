"""Finds out whether a process has a file open for writing, as far as this one may see."""

import os
from pathlib import Path

_WRITABLE = frozenset({os.O_WRONLY, os.O_RDWR})


def is_open_for_writing(status: os.stat_result) -> bool:
    """Returns True if a process of this user has the file open for writing. Others cannot be seen."""
    processes = (path for path in Path("/proc").iterdir() if path.name.isdecimal())
    return any(_writes(process, (status.st_dev, status.st_ino)) for process in processes)


def _writes(process: Path, identity: tuple[int, int]) -> bool:
    try:
        with os.scandir(process / "fd") as descriptors:
            return any(_is_writer(process, Path(entry.path), identity) for entry in descriptors)
    except OSError:  # it has ended, or is another user's
        return False


def _is_writer(process: Path, descriptor: Path, identity: tuple[int, int]) -> bool:
    try:
        status = descriptor.stat()  # asks for the open file, not for what its name is now
        if (status.st_dev, status.st_ino) != identity:
            return False
        lines = (process / "fdinfo" / descriptor.name).read_text().splitlines()
    except OSError:
        return False
    flags = next((int(line.split()[1], 8) for line in lines if line.startswith("flags:")), 0)
    return flags & os.O_ACCMODE in _WRITABLE
