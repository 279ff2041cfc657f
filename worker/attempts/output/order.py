"""Puts the lines of stdout and stderr of one rank in the order in which the rank has written them, by its marks."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from pathlib import Path

from torchyard.contract.attempts.rundir import ORDER_MARK
from torchyard.contract.errors import DataError
from torchyard.host.untrusted import open_inside
from worker.attempts.output.lines import Line

_CHUNK = 1 << 20
"""Bytes of marks that one call reads."""
_Offsets = tuple[int, int]


class Marks:
    """The marks of a rank: of those that were read, the ones that later lines may need. A job may forge them."""

    def __init__(self, job: Path, source: str) -> None:
        self._job, self._name = job, f"{source}.order"
        self._offset = 0
        self._kept: list[_Offsets] = []

    def read(self, offsets: _Offsets) -> list[_Offsets]:
        """Returns the marks that lie behind these offsets of stdout and stderr. The list is empty if there are none.

        Raises OSError.
        """
        self._kept = [mark for mark in self._kept if mark[0] > offsets[0] or mark[1] > offsets[1]]
        try:
            file = open_inside(self._job, "logs", self._name)
        except DataError:  # it is no file: there is no order then
            return self._kept
        if file is not None:
            with file:
                file.seek(self._offset)
                data = file.read(_CHUNK)
            whole = len(data) - len(data) % ORDER_MARK.size
            self._offset += whole
            self._kept += ORDER_MARK.iter_unpack(data[:whole])
        return self._kept


def merged(streams: Sequence[Sequence[Line]], marks: Sequence[_Offsets]) -> Iterator[tuple[int, list[Line]]]:
    """Yields runs of lines of one of two streams, which is 0 or 1, in the order of the marks.

    Between two marks, lines of the first stream come first.
    """
    positions = [[*accumulate((mark[number] for mark in marks), max)] for number in (0, 1)]
    lines = [
        (bisect_right(positions[number], line.start), number, line) for number in (0, 1) for line in streams[number]
    ]
    lines.sort(key=lambda each: each[:2])
    for number, run in groupby(lines, key=lambda each: each[1]):
        yield number, [line for _, _, line in run]
