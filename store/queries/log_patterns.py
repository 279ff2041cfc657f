"""What a search looks for in lines of output. Each takes time in proportion to the text, whatever the pattern."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
import re
from typing import Protocol

from torchyard.contract.errors import FieldError, InvalidRequest

Span = tuple[int, int]
"""The first character of a match, and the one behind it."""

_MOST_SPANS = 50
_MOST_MEMORY = 1 << 20
"""For one expression, in bytes: RE2 refuses to compile what needs more, and forgets states beyond it."""
_LINE_BOUND = re.compile(r"\\[Az]|\(\?[a-zA-Z]*-[a-zA-Z]*m")
"""What may match at the ends of a line alone, but not at those of a line among others."""


class _Match(Protocol):
    def span(self) -> Span: ...


@dataclass(frozen=True)
class Pattern:
    """`may_be_in`: whether a line of the text may match. `is_in`: whether this line does. `spans`: where in it."""

    may_be_in: Callable[[str], bool]
    is_in: Callable[[str], bool]
    spans: Callable[[str], Sequence[Span]]


def plain(text: str, *, case: bool) -> Pattern:
    """Returns the pattern of a text. Unless `case`, capital and small letters are the same."""
    literal = re.compile(re.escape(text), 0 if case else re.IGNORECASE)
    wanted = text if case else text.casefold()

    def is_in(line: str) -> bool:
        return wanted in (line if case else line.casefold())

    def spans(line: str) -> list[Span]:
        return _first(literal.finditer(line))

    return Pattern(may_be_in=is_in, is_in=is_in, spans=spans)


def regular(expression: str, *, case: bool) -> Pattern:
    """Returns the pattern of a regular expression in RE2's syntax. Raises InvalidRequest."""
    # Imported here, because most processes never need it.
    import re2

    re2.purge()  # it would keep many compiled expressions
    options = re2.Options()
    options.case_sensitive, options.max_mem, options.log_errors = case, _MOST_MEMORY, False

    def compiled(source: str | bytes):
        return re2.compile(source, options)

    try:
        in_line, in_bytes = compiled(expression), compiled(expression.encode())
        # A line that matches alone matches among others too, and whole chunks are searched much faster than lines.
        in_chunk = None if _LINE_BOUND.search(expression) else compiled(b"(?m)" + expression.encode())
    except re2.error as error:
        said = error.args[0]
        message = f"is no regular expression: {said.decode() if isinstance(said, bytes) else said}"
        raise InvalidRequest(f"q {message}", errors=(FieldError("q", message),)) from None

    def spans(line: str) -> list[Span]:
        return _first(in_line.finditer(line))

    return Pattern(
        may_be_in=lambda text: in_chunk is None or in_chunk.search(text.encode()) is not None,
        is_in=lambda line: in_bytes.search(line.encode()) is not None,
        spans=spans,
    )


def _first(found: Iterator[_Match]) -> list[Span]:
    # To find one match may take as long as to read the line, so their number is bounded before empty ones are left out.
    return [match.span() for match in islice(found, _MOST_SPANS) if match.span()[0] < match.span()[1]]
