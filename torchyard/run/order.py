"""Notes in which order a rank has written to stdout and stderr: two files do not tell.

Where the program goes on in the other stream, a mark has the bytes of both files until then. What it writes without
Python's own streams, as native code and its children do, is between two marks.
"""

import io
import os
from pathlib import Path
import sys
from typing import TextIO

from torchyard.contract.attempts.rundir import ORDER_MARK

_MOST_BYTES = 1 << 24
"""So many bytes of marks are written: a million changes from one stream to the other."""


class Order:
    """The marks of one rank. `streams`: the descriptors of stdout and stderr."""

    def __init__(self, path: Path, streams: tuple[int, int]) -> None:
        self._streams = streams
        self._last: int | None = None
        self._left = _MOST_BYTES // ORDER_MARK.size
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o600)

    def note(self, stream: int) -> None:
        """Notes that what comes next is written to this one of the streams."""
        before, self._last = self._last, stream
        if before in (stream, None) or not self._left:
            return
        self._left -= 1
        try:
            os.write(self._file, ORDER_MARK.pack(*(os.fstat(each).st_size for each in self._streams)))
        except OSError:  # the program has closed a stream, or the disk is full: the output itself matters more
            self._left = 0


class _Noted(io.TextIOWrapper):
    """A stream of text whose writes are noted."""

    def __init__(self, stream: TextIO, order: Order, number: int) -> None:
        super().__init__(stream.buffer, stream.encoding, stream.errors, "\n", write_through=True)
        self._order, self._number = order, number
        self._before = stream  # its end would close the file

    @property
    def mode(self) -> str:
        return "w"

    def write(self, text: str, /) -> int:
        self._order.note(self._number)
        return super().write(text)


def begin(path: Path) -> None:
    """Has what Python writes to stdout and stderr, which are files, noted in the file `path`. Raises OSError."""
    order = Order(path, (sys.stdout.fileno(), sys.stderr.fileno()))
    sys.stdout, sys.stderr = (_Noted(stream, order, at) for at, stream in enumerate((sys.stdout, sys.stderr)))
