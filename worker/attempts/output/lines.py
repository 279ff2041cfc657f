"""Reads the lines that an attempt appends to its files, a bounded part at a time. Their content is untrusted."""

import codecs
from dataclasses import dataclass, field
import errno
import os
from pathlib import Path
import re
import stat
from typing import BinaryIO, NamedTuple

from torchyard.contract.errors import DataError
from torchyard.contract.wire.text import storable
from torchyard.host.untrusted import open_inside
from worker.host.overwriting import BLANK, goes_up, newest_part

CHUNK = 1 << 18
"""Bytes of one file that one call reads."""
_SEARCH_LIMIT = 1 << 26
"""Bytes of one file that one call searches for the end of a line."""
_FINAL_LIMIT = 1 << 28
"""If more unread bytes than these are left when the attempt has ended, only the last `_FINAL_TAIL` of them are read."""
_FINAL_TAIL = 1 << 24
_LINE_END, _PART_END = re.compile(b"\n"), re.compile(b"[\r\n]")
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
    unfinished: Line | None = None
    """What is behind the lines, without an end so far; empty if that is nothing. None: as the call before has said."""
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
        self._waiting: dict[str, tuple[int, int]] = {}
        """By file name, for a line without an end: where it starts, and the size of the file that it ends with."""

    def read(self, *path: str, offset: int, keep: int, final: bool, overwrites: bool = False) -> ReadResult:
        """Reads the lines of one chunk from `offset` on, or one longer line. Returns at most `keep` bytes of each line.

        `final`: all processes have ended, so a last line without an end is complete; and if more than 256 MiB are
        unread, only the last 16 MiB are read. `overwrites`: of a line with a `\\r`, only the newest part with text is
        returned, and `offset` may be within the line, at this part or before it. Raises OSError.
        """
        result, name = ReadResult(offset), path[-1]
        start, end = self._waiting.get(name, (0, 0))
        if not final and self._has_size(path, {offset, end} if start == offset else {offset}):
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
                self._read_lines(file, name, result, keep=keep, final=final, overwrites=overwrites)
        return result

    def _has_size(self, path: tuple[str, ...], sizes: set[int]) -> bool:
        """Returns True if the file surely has nothing new. Asking for its size costs a tenth of opening it."""
        try:
            status = os.lstat("/".join((self._folder, *path)))
        except OSError:
            return False
        return status.st_size in sizes and stat.S_ISREG(status.st_mode)

    def _check_offset(self, file: BinaryIO, name: str, result: ReadResult, *, final: bool) -> None:
        size = os.fstat(file.fileno()).st_size
        if size < result.offset:
            result.warnings.append(f"{name} became shorter: reading it again from its start")
            result.offset = 0
        if final and size - result.offset > _FINAL_LIMIT:
            skipped = size - _FINAL_TAIL - result.offset
            result.warnings.append(f"{skipped} bytes of {name} were written too late and are left out")
            result.offset = size - _FINAL_TAIL

    def _read_lines(
        self, file: BinaryIO, name: str, result: ReadResult, *, keep: int, final: bool, overwrites: bool
    ) -> None:
        start = result.offset
        data = _read(file, start)
        end = data.rfind(b"\n") + 1
        if not end and len(data) == CHUNK:
            self._read_long_line(file, name, result, data, keep=keep, final=final, overwrites=overwrites)
            return
        if not end and final:
            end = len(data)  # the last line has no newline
        result.offset = start + end
        if len(data) < CHUNK:
            self._waiting[name] = (result.offset, start + len(data))
            result.unfinished = _line(data[end:], result.offset, keep=keep, overwrites=overwrites)
        lines = data[:end].removesuffix(b"\n").split(b"\n") if end else []
        for number, line in enumerate(lines):
            if not (overwrites and goes_up(line) and (number + 1 < len(lines) and goes_up(lines[number + 1]))):
                result.lines.append(_line(line, start, keep=keep, overwrites=overwrites))
            start += len(line) + 1
        if overwrites and not final and len(data) < CHUNK and lines and goes_up(lines[-1]):
            self._hold_back(name, result, data[end - len(lines[-1]) - 1 :], keep=keep)

    def _hold_back(self, name: str, result: ReadResult, drawn: bytes, *, keep: int) -> None:
        """Leaves the last line, over which the next may be drawn, unfinished. `drawn`: it, and what is behind it."""
        result.lines.pop()
        end = self._waiting[name][1]
        result.offset = end - len(drawn)
        self._waiting[name] = (result.offset, end)
        result.unfinished = _line(drawn.replace(b"\n", b"\r"), result.offset, keep=keep, overwrites=True)

    def _read_long_line(
        self, file: BinaryIO, name: str, result: ReadResult, data: bytes, *, keep: int, final: bool, overwrites: bool
    ) -> None:
        """Reads a line of which `data` is the beginning, or leaves out parts of it that are overwritten."""
        start = result.offset
        result.unfinished = _line(data, start, keep=keep, overwrites=overwrites)
        if overwrites and (newest := newest_part(data[: max(data.rfind(b"\r"), 0)])[0]):
            result.offset = start + newest  # the part behind it may be blank
            return
        end = self._find_end(name, file, start, final=final, overwrites=overwrites)
        if end is None:
            return
        result.offset = end.following
        if not end.overwritten:
            result.lines.append(Line(data[:keep], max(0, end.end - start - keep), start))
            result.unfinished = Line(b"", 0, end.following)

    def _find_end(self, name: str, file: BinaryIO, offset: int, *, final: bool, overwrites: bool) -> "_End | None":
        """Returns where the long line, or part of one, at `offset` ends. Returns None if it has no end yet."""
        start, position = self._searched.get(name, (offset, offset))
        position = position if start == offset else offset
        read = 0
        while final or read < _SEARCH_LIMIT:
            position = _skip_hole(file, position)
            data = _read(file, position)
            if (match := (_PART_END if overwrites else _LINE_END).search(data)) is not None:
                position += match.start()
                end = _end_at(file, position, final=final)
                if end is not None:
                    return end
                break
            position += len(data)
            read += len(data)
            if len(data) < CHUNK:
                break
        self._searched[name] = (offset, position)
        return _End(position, position) if final else None


class _End(NamedTuple):
    end: int
    following: int
    """Where the next line, or the next part of this one, begins."""
    overwritten: bool = False
    """Whether text follows in the same line."""


def _end_at(file: BinaryIO, position: int, *, final: bool) -> _End | None:
    """Returns the end at a `\\n` or a `\\r`. Returns None if it is not known what follows."""
    data = _read(file, position)
    following = data.lstrip(BLANK)
    blank = len(data) - len(following)
    if following.startswith(b"\n"):
        return _End(position, position + blank + 1)
    if following or blank == CHUNK:
        return _End(position, position + 1, overwritten=True)
    return _End(position, position + blank) if final else None


def _line(line: bytes, start: int, *, keep: int, overwrites: bool) -> Line:
    begin, end = newest_part(line) if overwrites else (0, len(line))
    return Line(line[begin : min(end, begin + keep)], max(0, end - begin - keep), start)


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
