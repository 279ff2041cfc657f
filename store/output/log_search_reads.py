"""Searches the lines of a job's log, a bounded part of it at a time."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
import time

from sqlalchemy.orm import Session

from store.db.database import Snapshots
from store.output import logs
from store.output.facts import EVERY_LINE, Line, LogFilter
from store.output.log_patterns_reads import Pattern, Span
from store.pages import PAGE_BYTES
from store.tables import LogChunk

MOST_TEXT, MOST_CHUNKS, MOST_MATCHES = 1 << 25, 5000, 10_000
"""A search ends after so many characters, chunks or matches."""
MOST_SECONDS = 2.0
"""A search ends after so much processor time of the threads that do it: an expression may need seconds for a MiB."""
PART_S = 0.05
"""Processor time of a part, after which others may have the thread."""
_SLICE = 1 << 13
"""Characters that are searched at once, with the rest of their last line. Nothing can interrupt that."""


@dataclass(frozen=True)
class FoundLine:
    line: Line
    spans: Sequence[Span]


@dataclass(frozen=True)
class FoundLines:
    """The matching lines among those numbered from `first` to `last`."""

    lines: list[FoundLine]
    """The first of them."""
    matches: int
    """The number of all of them."""
    first: int
    last: int
    complete: bool
    """Whether the range that was asked for was searched to its end."""
    next: int | None
    """The number behind which the search goes on; None where nothing is left."""


@dataclass
class _Work:
    """What a search has read, and how long it took."""

    text: int = 0
    chunks: int = 0
    seconds: float = 0.0

    @property
    def is_enough(self) -> bool:
        return self.text >= MOST_TEXT or self.chunks >= MOST_CHUNKS or self.seconds > MOST_SECONDS


class LogSearch:
    """A search of the lines numbered above `after` and below `before`, in order, for the first `limit` that match.

    It keeps up to 8 MiB of them. The job has all lines below `before`.
    """

    def __init__(
        self, job_id: str, pattern: Pattern, *, after: int, before: int, limit: int, where: LogFilter = EVERY_LINE
    ) -> None:
        self._job_id = job_id
        self._pattern = pattern
        self._after = self._last = after
        self._end = max(before - 1, after)
        self._limit = limit
        self._where = where
        self._shown: list[FoundLine] = []
        self._matches = self._size = 0
        self._work = _Work()

    def parts(self, store: Snapshots) -> Iterator[None]:
        """Searches a part, in a transaction of its own, before each item. Another thread may do the next one."""
        while not self._done:
            began, spent = time.thread_time(), self._work.seconds
            with store.read() as session, closing(self._slices(session)) as slices:
                for _ in slices:
                    self._work.seconds = spent + time.thread_time() - began
                    if self._done or self._work.seconds - spent >= PART_S:
                        break
                else:
                    self._last = self._end
            yield

    @property
    def found(self) -> FoundLines:
        """What was found until now."""
        complete = self._last >= self._end
        following = None if complete else self._last
        if len(self._shown) < self._matches:
            following = self._shown[-1].line.line
        return FoundLines(self._shown, self._matches, self._after + 1, self._last, complete, following)

    @property
    def _done(self) -> bool:
        return self._last >= self._end or self._matches >= MOST_MATCHES or self._work.is_enough

    def _slices(self, session: Session) -> Generator[None]:
        """Searches slices behind the last line that was searched, one before each item."""
        with closing(logs.chunks_from(session, self._job_id, self._last + 1, self._where, to=self._end)) as chunks:
            for chunk in chunks:
                self._work.chunks += 1
                for first, text in _slices(chunk, begin=self._last + 1):
                    self._search(chunk, first, text)
                    yield

    def _search(self, chunk: LogChunk, first: int, text: str) -> None:
        """Searches the lines of `text`, which are numbered from `first`."""
        self._work.text += len(text)
        lines = text.split("\n")
        for place in self._pattern.matching(text):
            if not self._last < first + place <= self._end:
                continue
            if len(self._shown) == self._matches:
                self._show(chunk, first + place, lines[place])
            self._matches += 1
        self._last = min(first + len(lines) - 1, self._end)

    def _show(self, chunk: LogChunk, number: int, text: str) -> None:
        """Keeps a line, unless there are enough."""
        self._size += len(text.encode())
        if len(self._shown) < self._limit and (not self._shown or self._size <= PAGE_BYTES):
            self._shown.append(FoundLine(logs.line(chunk, number, text), self._pattern.spans(text)))


def _slices(chunk: LogChunk, *, begin: int) -> Iterator[tuple[int, str]]:
    """Yields whole lines of the chunk from the line `begin` on, each time with the number of the first."""
    place, number = 0, chunk.first
    while number < begin and (end := chunk.text.find("\n", place)) >= 0:
        place, number = end + 1, number + 1
    while place <= len(chunk.text):
        end = chunk.text.find("\n", place + _SLICE)
        text = chunk.text[place:] if end < 0 else chunk.text[place:end]
        yield number, text
        place, number = place + len(text) + 1, number + text.count("\n") + 1
