"""Reads a database of SQLite that another process writes, without a lock: a lock of ours could make that one fail.

A copy counts if no transaction was under way before and after it was read: then there is neither a journal nor a log
beside it, and the counter of its changes (sqlite.org/fileformat.html) is the same.
"""

from dataclasses import dataclass
import os
from pathlib import Path
import time
from typing import BinaryIO

from torchyard.contract.errors import DataError
from worker.curves.parsed import Part

MOST_BYTES = 1 << 26
PAUSE_S = 3.0
"""Between two copies of one, and more of a larger one."""
_BYTES_PER_SECOND = 1 << 21
_VERSIONS, _COUNTER = slice(18, 20), slice(24, 28)
_HEADER = 100
_BESIDE = ("-journal", "-wal")


@dataclass
class _Seen:
    """`status`: of the copy that was read last. `row`: the last one that was parsed. `has_more`: whether others are."""

    status: tuple[int, int] = (-1, -1)
    row: int = -1
    next_at: float = 0.0
    has_more: bool = False


class Snapshots:
    """`since_ms`: rows that are older were there before the job."""

    def __init__(self, since_ms: int) -> None:
        self._since_ms = since_ms
        self._seen: dict[str, _Seen] = {}

    def take(self, name: str, path: Path, file: BinaryIO, offset: int, *, final: bool) -> Part | None:
        """Returns a copy to be parsed, or None if there is nothing new, it is not due, or it is written just now.

        `final`: nobody writes any more. Raises DataError if it is too large, and OSError.
        """
        seen, status = self._seen.setdefault(name, _Seen()), _status(file)
        size = status[0]
        is_read = (status, offset) == (seen.status, seen.row) and not seen.has_more
        if not size or is_read or (time.monotonic() < seen.next_at and not final):
            return None
        if size > MOST_BYTES:
            raise DataError(f"has more than {MOST_BYTES >> 20} MiB")
        seen.next_at = time.monotonic() + PAUSE_S + size / _BYTES_PER_SECOND
        before = _header(file)[_COUNTER]
        if not final and _is_written(path):
            return None
        data = bytearray(os.pread(file.fileno(), size, 0))
        changed = _status(file) != status or _header(file)[_COUNTER] != before or len(data) != size
        if not final and (changed or _is_written(path)):
            return None
        data[_VERSIONS] = b"\x01\x01"[: len(data[_VERSIONS])]  # without a log beside it, the mode does not matter
        seen.status, seen.has_more = status, False
        return Part(kind="database", offset=offset, size=size, data=bytes(data), since_ms=self._since_ms)

    def note(self, name: str, row: int, *, more: bool) -> None:
        """Notes up to which row the last copy was parsed, and whether it has more. They may still not be stored."""
        self._seen[name].row, self._seen[name].has_more = row, more

    @property
    def has_more(self) -> bool:
        """Whether not all rows of some copy were parsed."""
        return any(seen.has_more for seen in self._seen.values())

    def forget(self, name: str) -> None:
        """Has a copy taken again: what was found in the last is not stored."""
        self._seen.pop(name, None)


def _status(file: BinaryIO) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def _header(file: BinaryIO) -> bytes:
    return os.pread(file.fileno(), _HEADER, 0)


def _is_written(path: Path) -> bool:
    return any(_size(path.with_name(path.name + end)) > 0 for end in _BESIDE)


def _size(path: Path) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0
