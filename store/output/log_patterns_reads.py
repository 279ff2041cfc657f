"""What a search looks for in lines of output. Each takes time in proportion to the text, whatever the pattern."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
import re
import time
from typing import Protocol

from torchyard.contract.errors import FieldError, InvalidRequest

Span = tuple[int, int]
"""The first character of a match, and the one behind it."""

_MOST_SPANS = 50
_SPANS_S = 0.02
"""Processor time after which no further matches in a line are looked for."""
_MOST_MEMORY = 1 << 20
"""For one expression, in bytes: RE2 refuses to compile what needs more, and forgets states beyond it."""
_LINE_BOUND = re.compile(r"\\[Az]|\(\?[a-zA-Z]*-[a-zA-Z]*m")
"""What may match at the ends of a line alone, but not at those of a line among others."""


class _Match(Protocol):
    def span(self) -> Span: ...


@dataclass(frozen=True)
class Pattern:
    """`matching`: yields the places, from 0, of the lines of a text that match. `spans`: where a line matches."""

    matching: Callable[[str], Iterator[int]]
    spans: Callable[[str], Sequence[Span]]


def plain(text: str, *, case: bool) -> Pattern:
    """Returns the pattern of a text. Unless `case`, capital and small letters are the same."""
    wanted = text if case else text.casefold()

    def matching(lines: str) -> Iterator[int]:
        folded = lines if case else lines.casefold()
        place = line = 0
        while "\n" not in wanted and (found := folded.find(wanted, place)) >= 0:
            line += folded.count("\n", place, found)
            yield line
            place = folded.find("\n", found) + 1
            line += 1
            if not place:
                return

    def spans(line: str) -> list[Span]:
        found = list(islice(_places(line if case else line.casefold(), wanted), _MOST_SPANS))
        origins = range(len(line)) if case or not found else _origins(line)
        return [(origins[start], origins[end - 1] + 1) for start, end in found]

    return Pattern(matching, spans)


def regular(expression: str, *, case: bool) -> Pattern:
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
        said = error.args[0]
        message = f"is no regular expression: {said.decode() if isinstance(said, bytes) else said}"
        raise InvalidRequest(f"q {message}", errors=(FieldError("q", message),)) from None

    def matching(lines: str) -> Iterator[int]:
        text = lines.encode()
        if among_others is None:
            yield from (place for place, line in enumerate(text.split(b"\n")) if alone.search(line) is not None)
            return
        # No match goes beyond the end of its line, so all searches together read the text once.
        place = line = 0
        while (found := among_others.search(text, place)) is not None:
            start = found.span()[0]
            line += text.count(b"\n", place, start)
            yield line
            place = text.find(b"\n", start) + 1
            line += 1
            if not place:
                return

    return Pattern(matching, lambda line: _first(in_line.finditer(line)))


def _places(text: str, wanted: str) -> Iterator[Span]:
    """Yields where `wanted`, which is not empty, occurs in the text, without overlaps."""
    place = text.find(wanted)
    while place >= 0:
        yield place, place + len(wanted)
        place = text.find(wanted, place + len(wanted))


def _origins(line: str) -> Sequence[int]:
    """Returns the place in the line of each character of `line.casefold()`, which may have more characters."""
    if len(line.casefold()) == len(line):
        return range(len(line))
    return [place for place, character in enumerate(line) for _ in character.casefold()]


def _first(found: Iterator[_Match]) -> list[Span]:
    # To find one match may take as long as to read the line, so their number is bounded before empty ones are left out.
    began, spans = time.thread_time(), list[Span]()
    for match in islice(found, _MOST_SPANS):
        start, end = match.span()
        if start < end:
            spans.append((start, end))
        if time.thread_time() - began > _SPANS_S:
            break
    return spans
