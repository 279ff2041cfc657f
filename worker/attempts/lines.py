"""Reads the lines that an attempt appends to its files, a bounded part at a time. Their content is untrusted."""

import codecs
from dataclasses import dataclass, field
import errno
import os
from pathlib import Path
import stat
from typing import BinaryIO, NamedTuple

from torchyard.contract.errors import DataError
from torchyard.contract.text import storable
from torchyard.contract.untrusted import open_inside

CHUNK = 1 << 18
"""Bytes of one file that one call reads."""
_SEARCH_LIMIT = 1 << 26
"""Bytes of one file that one call searches for the end of a line."""
_FINAL_LIMIT = 1 << 28
"""If more unread bytes than these are left when the attempt has ended, only the last `_FINAL_TAIL` of them are read."""
_FINAL_TAIL = 1 << 24
_Decoder = codecs.getincrementaldecoder("utf-8")


class Line(NamedTuple):
    text: bytes
    cut: int
    """The number of bytes at its end that are not in `text`."""
    start: int
    """Its offset in the file."""


@dataclass
class ReadResult:
    """The lines that one call has read from a file."""

    offset: int
    """Where the next call continues."""
    lines: list[Line] = field(default_factory=list[Line])
    warnings: list[str] = field(default_factory=list[str])


class LineReader:
    """Reads files below `job`, the part of the run directory that the job may write."""

    def __init__(self, job: Path) -> None:
        self._job = job
        self._folder = str(job)
        self._unreadable: set[str] = set()
        self._searched: dict[str, tuple[int, int]] = {}
        """By file name, for a long line without an end: where the line starts, and where the search for its end
        continues."""

    def read(self, *path: str, offset: int, keep: int, final: bool) -> ReadResult:
        """Reads the lines of one chunk from `offset` on, or one longer line. Returns at most `keep` bytes of each line.

        `final`: all processes have ended, so a last line without an end is complete; and if more than 256 MiB are
        unread, only the last 16 MiB are read. Raises OSError.
        """
        result, name = ReadResult(offset), path[-1]
        if not final and self._has_size(path, offset):
            return result
        try:
            file = open_inside(self._job, *path)
        except DataError as error:
            if name not in self._unreadable:
                self._unreadable.add(name)
                result.warnings.append(f"{error.message}, and is not read")
            return result
        if file is not None:
            with file:
                self._check_offset(file, name, result, final=final)
                self._read_lines(file, name, result, keep=keep, final=final)
        return result

    def _has_size(self, path: tuple[str, ...], offset: int) -> bool:
        """Returns True if the file surely has nothing new. Asking for its size costs a tenth of opening it."""
        try:
            status = os.lstat("/".join((self._folder, *path)))
        except OSError:
            return False
        return status.st_size == offset and stat.S_ISREG(status.st_mode)

    def _check_offset(self, file: BinaryIO, name: str, result: ReadResult, *, final: bool) -> None:
        size = os.fstat(file.fileno()).st_size
        if size < result.offset:
            result.warnings.append(f"{name} has become shorter, and is read again from its start")
            result.offset = 0
        if final and size - result.offset > _FINAL_LIMIT:
            skipped = size - _FINAL_TAIL - result.offset
            result.warnings.append(f"{skipped} bytes of {name} were written too late, and are left out")
            result.offset = size - _FINAL_TAIL

    def _read_lines(self, file: BinaryIO, name: str, result: ReadResult, *, keep: int, final: bool) -> None:
        start = result.offset
        data = _read(file, start)
        end = data.rfind(b"\n") + 1
        if not end and len(data) == CHUNK:
            line_end, next_line = self._find_line_end(name, file, start, final=final)
            if next_line > start:
                result.lines.append(Line(data[:keep], line_end - start - keep, start))
                result.offset = next_line
            return
        if not end and final:
            end = len(data)  # the last line has no newline
        if not end:
            return
        result.offset = start + end
        for line in data[:end].removesuffix(b"\n").split(b"\n"):
            result.lines.append(Line(line[:keep], max(0, len(line) - keep), start))
            start += len(line) + 1

    def _find_line_end(self, name: str, file: BinaryIO, offset: int, *, final: bool) -> tuple[int, int]:
        """Returns where the long line at `offset` ends, and where the next line starts.

        Returns (offset, offset) if there is no newline yet.
        """
        start, position = self._searched.get(name, (offset, offset))
        position = position if start == offset else offset
        read = 0
        while final or read < _SEARCH_LIMIT:
            position = _skip_hole(file, position)
            data = _read(file, position)
            found = data.find(b"\n")
            if found >= 0:
                return position + found, position + found + 1
            position += len(data)
            read += len(data)
            if len(data) < CHUNK:
                break
        self._searched[name] = (offset, position)
        return (position, position) if final else (offset, offset)


def as_text(raw: bytes, cut: int = 0) -> str:
    """Returns a line as text that the store accepts. `cut`: the number of bytes that were left out at its end."""
    if not cut:
        return storable(raw.decode("utf-8", "replace"))
    start = _Decoder("replace").decode(raw)  # leaves out a character that was cut in two
    return storable(f"{start} … [{cut} bytes cut]")


def _read(file: BinaryIO, offset: int) -> bytes:
    return os.pread(file.fileno(), CHUNK, offset)


def _skip_hole(file: BinaryIO, position: int) -> int:
    """Returns the offset of the next data of a sparse file from `position` on, or its size if there is none."""
    try:
        return os.lseek(file.fileno(), position, os.SEEK_DATA)
    except OSError as error:
        return os.fstat(file.fileno()).st_size if error.errno == errno.ENXIO else position
