"""Reads the lines that an attempt appends to its files, a bounded part at a time. What they hold may be forged."""

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
_SEARCH = 1 << 26  # bytes of a file in which one call looks for the end of a line
_LAST = 1 << 28
"""Bytes of one file that are still read once the attempt has ended. Of more than that, only the end is."""
_LAST_KEPT = 1 << 24
_Decoder = codecs.getincrementaldecoder("utf-8")


class Line(NamedTuple):
    text: bytes
    cut: int
    """How many bytes of it were left out."""
    start: int
    """Where it starts in its file."""


@dataclass
class Part:
    """What one call has read of a file. The next one goes on at `offset`."""

    offset: int
    lines: list[Line] = field(default_factory=list[Line])
    complaints: list[str] = field(default_factory=list[str])


class Lines:
    """The files below `job`, the folder of an attempt that is the job's own."""

    def __init__(self, job: Path) -> None:
        self._job = job
        self._folder = str(job)
        self._unreadable: set[str] = set()
        self._searched: dict[str, tuple[int, int]] = {}
        """Of a file whose next line is a long one: where the line starts, and where to search on for its end."""

    def read(self, *path: str, offset: int, keep: int, final: bool) -> Part:
        """The lines of one chunk from `offset` on, or one longer line: at most `keep` bytes of each.

        `final`: nothing is written any more, so a last line without an end is whole, and of more than 256 MiB only the
        last 16 MiB are read. Raises OSError.
        """
        part, name = Part(offset), path[-1]
        if not final and self._is_as_long(path, offset):
            return part
        try:
            file = open_inside(self._job, *path)
        except DataError as error:
            if name not in self._unreadable:
                self._unreadable.add(name)
                part.complaints.append(f"{error.message}, and is not read")
            return part
        if file is not None:
            with file:
                self._place(file, name, part, final=final)
                self._take(file, name, part, keep=keep, final=final)
        return part

    def _is_as_long(self, path: tuple[str, ...], offset: int) -> bool:
        """Whether there is surely nothing new: looking at its size costs a tenth of opening it."""
        try:
            status = os.lstat("/".join((self._folder, *path)))
        except OSError:
            return False
        return status.st_size == offset and stat.S_ISREG(status.st_mode)

    def _place(self, file: BinaryIO, name: str, part: Part, *, final: bool) -> None:
        size = os.fstat(file.fileno()).st_size
        if size < part.offset:
            part.complaints.append(f"{name} has become shorter, and is read again from its start")
            part.offset = 0
        if final and size - part.offset > _LAST:
            skipped = size - _LAST_KEPT - part.offset
            part.complaints.append(f"{skipped} bytes of {name} were written too late, and are left out")
            part.offset = size - _LAST_KEPT

    def _take(self, file: BinaryIO, name: str, part: Part, *, keep: int, final: bool) -> None:
        start = part.offset
        data = _read(file, start)
        end = data.rfind(b"\n") + 1
        if not end and len(data) == CHUNK:
            stop, behind = self._end(name, file, start, final=final)
            if behind > start:
                part.lines.append(Line(data[:keep], stop - start - keep, start))
                part.offset = behind
            return
        if not end and final:
            end = len(data)  # the last line, without its end
        if not end:
            return
        part.offset = start + end
        for line in data[:end].removesuffix(b"\n").split(b"\n"):
            part.lines.append(Line(line[:keep], max(0, len(line) - keep), start))
            start += len(line) + 1

    def _end(self, name: str, file: BinaryIO, offset: int, *, final: bool) -> tuple[int, int]:
        """Where the long line at `offset` stops, and what follows it starts; twice `offset` while that is not found."""
        start, position = self._searched.get(name, (offset, offset))
        position = position if start == offset else offset
        read = 0
        while final or read < _SEARCH:
            position = _behind_hole(file, position)
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
    """What the store takes for a line of which `cut` bytes were left out."""
    if not cut:
        return storable(raw.decode("utf-8", "replace"))
    start = _Decoder("replace").decode(raw)  # a character that was cut in two is left out
    return storable(f"{start} … [{cut} bytes cut]")


def _read(file: BinaryIO, offset: int) -> bytes:
    return os.pread(file.fileno(), CHUNK, offset)


def _behind_hole(file: BinaryIO, position: int) -> int:
    """Where the next bytes are that a sparse file holds, from `position` on; its size where there are none."""
    try:
        return os.lseek(file.fileno(), position, os.SEEK_DATA)
    except OSError as error:
        return os.fstat(file.fileno()).st_size if error.errno == errno.ENXIO else position
