"""Searches the lines of a job's log, a bounded part of it at a time, each in time in proportion to the text."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
import re
import time
from typing import Protocol

from sqlalchemy.orm import Session

from store.db.database import Snapshots
from store.output import logs
from store.output.facts import EVERY_LINE, LogFilter
from store.pages import PAGE_BYTES
from store.tables import LogChunk
from torchyard.contract.errors import FieldError, InvalidRequest
from torchyard.contract.telemetry.views import LogMatch

Span = tuple[int, int]
"""The first character of a match, and the one after it."""

_MOST_SPANS = 50
_SPANS_S = 0.02
"""Processor time after which no further matches in a line are looked for."""
_MOST_MEMORY = 1 << 20
"""For one expression, in bytes: RE2 refuses to compile what needs more, and forgets states beyond it."""
_LINE_BOUND = re.compile(r"\\[Az]|\(\?[a-zA-Z]*-[a-zA-Z]*m")
"""What may match at the ends of a line alone, but not at those of a line among others."""

MOST_TEXT, MOST_CHUNKS, MOST_MATCHES = 1 << 25, 5000, 10_000
"""A search ends after so many characters, chunks or matches."""
MOST_SECONDS = 2.0
"""A search ends after so much processor time of the threads that do it: an expression may need seconds for a MiB."""
PART_S = 0.05
"""Processor time of a part, after which others may have the thread."""
_SLICE = 1 << 13
"""Characters that are searched at once, with the rest of their last line. Nothing can interrupt that."""


class _Match(Protocol):
    def span(self) -> Span: ...


@dataclass(frozen=True)
class Pattern:
    """`matching`: yields the indices, from 0, of the lines of a text that match. `spans`: where a line matches."""

    matching: Callable[[str], Iterator[int]]
    spans: Callable[[str], Sequence[Span]]


def match_text(text: str, *, case: bool) -> Pattern:
    """Returns the pattern of a text. Unless `case`, capital and small letters are the same."""
    wanted = text if case else text.casefold()

    def matching(lines: str) -> Iterator[int]:
        folded = lines if case else lines.casefold()
        begin = line = 0
        while "\n" not in wanted and (match := folded.find(wanted, begin)) >= 0:
            line += folded.count("\n", begin, match)
            yield line
            begin = folded.find("\n", match) + 1
            line += 1
            if not begin:
                return

    def spans(line: str) -> list[Span]:
        matches = list(islice(_spans_of(line if case else line.casefold(), wanted), _MOST_SPANS))
        origins = range(len(line)) if case or not matches else _origins(line)
        return [(origins[start], origins[end - 1] + 1) for start, end in matches]

    return Pattern(matching, spans)


def match_expression(expression: str, *, case: bool) -> Pattern:
    """Returns the pattern of a regular expression in RE2's syntax. Raises InvalidRequest."""
    # Imported here, because most processes never need it.
    import re2

    re2.purge()  # it would keep many compiled expressions
    options = re2.Options()
    options.case_sensitive, options.max_mem, options.log_errors = case, _MOST_MEMORY, False
    within_line = re2.Options()
    within_line.case_sensitive, within_line.max_mem, within_line.log_errors = case, _MOST_MEMORY, False
    within_line.never_nl = within_line.never_capture = True
    source = expression.encode()
    try:
        in_line = re2.compile(expression, options)
        alone = re2.compile(source, within_line)
        among_others = None if _LINE_BOUND.search(expression) else re2.compile(b"(?m)" + source, within_line)
    except re2.error as error:
        reason = error.args[0]
        message = f"is no regular expression: {reason.decode() if isinstance(reason, bytes) else reason}"
        raise InvalidRequest(f"q {message}", errors=(FieldError("q", message),)) from None

    def matching(lines: str) -> Iterator[int]:
        text = lines.encode()
        if among_others is None:
            yield from (index for index, line in enumerate(text.split(b"\n")) if alone.search(line) is not None)
            return
        # No match goes beyond the end of its line, so all searches together read the text once.
        begin = line = 0
        while (match := among_others.search(text, begin)) is not None:
            start = match.span()[0]
            line += text.count(b"\n", begin, start)
            yield line
            begin = text.find(b"\n", start) + 1
            line += 1
            if not begin:
                return

    return Pattern(matching, lambda line: _first_spans(in_line.finditer(line)))


@dataclass(frozen=True)
class FoundLines:
    """The matching lines among those numbered from `first` to `last`."""

    lines: list[LogMatch]
    """The first of them."""
    matches: int
    """The number of all of them."""
    first: int
    last: int
    complete: bool
    """Whether the range that was asked for was searched to its end."""
    next: int | None
    """The number after which the search goes on; None where nothing is left."""


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
        self._shown: list[LogMatch] = []
        self._matches = self._size = 0
        self._work = _Work()

    def parts(self, store: Snapshots) -> Iterator[None]:
        """Searches a part, in a transaction of its own, before each item. Another thread may do the next one."""
        while not self._is_done:
            began, spent = time.thread_time(), self._work.seconds
            with store.read() as session, closing(self._slices(session)) as slices:
                for _ in slices:
                    self._work.seconds = spent + time.thread_time() - began
                    if self._is_done or self._work.seconds - spent >= PART_S:
                        break
                else:
                    self._last = self._end
            yield

    @property
    def result(self) -> FoundLines:
        """What was found until now."""
        complete = self._last >= self._end
        following = None if complete else self._last
        if len(self._shown) < self._matches:
            following = self._shown[-1].line
        return FoundLines(self._shown, self._matches, self._after + 1, self._last, complete, following)

    @property
    def _is_done(self) -> bool:
        return self._last >= self._end or self._matches >= MOST_MATCHES or self._work.is_enough

    def _slices(self, session: Session) -> Generator[None]:
        """Searches slices after the last line that was searched, one before each item."""
        with closing(logs.read_chunks(session, self._job_id, self._last + 1, self._where, to=self._end)) as chunks:
            for chunk in chunks:
                self._work.chunks += 1
                for first, text in _slices(chunk, begin=self._last + 1):
                    self._search(chunk, first, text)
                    yield

    def _search(self, chunk: LogChunk, first: int, text: str) -> None:
        """Searches the lines of `text`, which are numbered from `first`."""
        self._work.text += len(text)
        lines = text.split("\n")
        for index in self._pattern.matching(text):
            if not self._last < first + index <= self._end:
                continue
            if len(self._shown) == self._matches:
                self._keep(chunk, first + index, lines[index])
            self._matches += 1
        self._last = min(first + len(lines) - 1, self._end)

    def _keep(self, chunk: LogChunk, number: int, text: str) -> None:
        """Keeps a line, unless there are enough."""
        self._size += len(text.encode())
        if len(self._shown) < self._limit and (not self._shown or self._size <= PAGE_BYTES):
            line = logs.line_of(chunk, number, text)
            self._shown.append(LogMatch(**line.model_dump(), spans=[*self._pattern.spans(text)]))


def _slices(chunk: LogChunk, *, begin: int) -> Iterator[tuple[int, str]]:
    """Yields whole lines of the chunk from the line `begin` on, each time with the number of the first."""
    at, number = 0, chunk.first
    while number < begin and (end := chunk.text.find("\n", at)) >= 0:
        at, number = end + 1, number + 1
    while at <= len(chunk.text):
        end = chunk.text.find("\n", at + _SLICE)
        text = chunk.text[at:] if end < 0 else chunk.text[at:end]
        yield number, text
        at, number = at + len(text) + 1, number + text.count("\n") + 1


def _spans_of(text: str, wanted: str) -> Iterator[Span]:
    """Yields where `wanted`, which is not empty, occurs in the text, without overlaps."""
    at = text.find(wanted)
    while at >= 0:
        yield at, at + len(wanted)
        at = text.find(wanted, at + len(wanted))


def _origins(line: str) -> Sequence[int]:
    """Returns the index in the line of each character of `line.casefold()`, which may have more characters."""
    if len(line.casefold()) == len(line):
        return range(len(line))
    return [index for index, character in enumerate(line) for _ in character.casefold()]


def _first_spans(matches: Iterator[_Match]) -> list[Span]:
    # To find one match may take as long as to read the line, so their number is bounded before empty ones are left out.
    began, spans = time.thread_time(), list[Span]()
    for match in islice(matches, _MOST_SPANS):
        start, end = match.span()
        if start < end:
            spans.append((start, end))
        if time.thread_time() - began > _SPANS_S:
            break
    return spans
