"""Searches the lines of a job's log, a bounded part of it at a time."""

from contextlib import closing
from dataclasses import dataclass

from sqlalchemy.orm import Session

from store.queries.log_patterns import Pattern
from store.rows import logs
from store.rows.logs import EVERY_LINE, Line, LogFilter
from store.rows.pages import PAGE_BYTES

MOST_TEXT, MOST_CHUNKS, MOST_MATCHES = 1 << 25, 5000, 10_000
"""A call ends behind so many characters, chunks or matches."""


@dataclass(frozen=True)
class FoundLines:
    """The matching lines among those numbered from `first` to `last`."""

    lines: list[Line]
    """The first of them."""
    matches: int
    """The number of all of them."""
    first: int
    last: int
    complete: bool
    """Whether the range that was asked for was searched to its end."""
    next: int | None
    """The number behind which the search goes on; None where nothing is left."""


def search(
    session: Session,
    job_id: str,
    pattern: Pattern,
    *,
    after: int,
    before: int,
    limit: int,
    where: LogFilter = EVERY_LINE,
) -> FoundLines:
    """Searches the lines numbered above `after` and below `before`, in order.

    Returns up to `limit` matching lines, and up to 8 MiB. The job has all lines below `before`.
    """
    shown: list[Line] = []
    matches = text = size = seen = 0
    last, complete = max(before - 1, after), True
    with closing(logs.chunks_from(session, job_id, after + 1, where, to=before - 1)) as chunks:
        for chunk in chunks:
            if text >= MOST_TEXT or seen == MOST_CHUNKS or matches >= MOST_MATCHES:
                last, complete = chunk.first - 1, False
                break
            seen += 1
            text += len(chunk.text)
            found = [place for place in pattern.matching(chunk.text) if after < chunk.first + place < before]
            if found and len(shown) == matches:
                lines = logs.lines(chunk)
                for line in (lines[place] for place in found):
                    size += len(line.text.encode())
                    if len(shown) == limit or (shown and size > PAGE_BYTES):
                        break
                    shown.append(line)
            matches += len(found)
    following = shown[-1].line if len(shown) < matches else last if not complete else None
    return FoundLines(shown, matches, after + 1, last, complete, following)
