"""Logs: chunks of lines, numbered through the whole job in the order in which they were relayed."""

from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Select, func, insert, select, update
from sqlalchemy.orm import Session

from store import pages
from store.db.columns import to_time
from store.output.facts import END, EVERY_LINE, Lines, LogFilter, NewLines
from store.pages import FactPage
from store.tables import Job, LogChunk
from store.team import access
from store.team.callers import Caller
from torchyard.contract.telemetry.views import LogLine

_MOST_NEWEST = 300
MOST_CHUNKS, MOST_CHARACTERS = 400, 4 << 20
"""How much of the end of a log is looked at for the newest lines of one rank, at most."""


def add(session: Session, job_id: str, *, attempt: int, lines: Sequence[NewLines]) -> None:
    """Appends lines to the job's log."""
    chunks = [chunk for chunk in lines if chunk.lines]
    total = sum(len(chunk.lines) for chunk in chunks)
    if not total:
        return
    last = session.execute(
        update(Job)
        .where(Job.id == job_id)
        .values(log_lines=Job.log_lines + total, position=Job.position + total)
        .returning(Job.log_lines, Job.position)
    ).one()
    first, position = last.log_lines - total + 1, last.position - total + 1
    for chunk in chunks:
        session.execute(
            insert(LogChunk).values(
                job_id=job_id,
                first=first,
                position=position,
                count=len(chunk.lines),
                attempt=attempt,
                rank=chunk.rank,
                stream=chunk.stream,
                text="\n".join(chunk.lines),
            )
        )
        first += len(chunk.lines)
        position += len(chunk.lines)


@dataclass(frozen=True)
class LogExtent:
    """A job's name, and how many lines it has."""

    name: str
    lines: int


def find_extent(session: Session, job_id: str, *, caller: Caller) -> LogExtent:
    """Returns how much output a job has that the caller may read. Raises NotFound."""
    return LogExtent(*access.readable_job(session, job_id, caller, Job.name, Job.log_lines))


def list_lines(
    session: Session,
    job_id: str,
    *,
    caller: Caller,
    where: LogFilter,
    limit: int,
    after: int = 0,
    before: int | None = None,
) -> tuple[FactPage[LogLine], int]:
    """Returns lines of a job that the caller may read, numbered above `after`, and how many the job has.

    With `before`, the newest of those below it. Raises NotFound.
    """
    (total,) = access.readable_job(session, job_id, caller, Job.log_lines)
    if before is None:
        return list_after(session, job_id, line=after, limit=limit, where=where), total
    return list_before(session, job_id, line=before, limit=limit, after=after, where=where), total


def list_after(
    session: Session, job_id: str, *, line: int, limit: int, where: LogFilter = EVERY_LINE
) -> FactPage[LogLine]:
    """Returns lines numbered above `line`, oldest first: up to `limit`, and up to 8 MiB."""
    with closing(read_chunks(session, job_id, line + 1, where)) as chunks:
        newer = (item for chunk in chunks for item in lines_of(chunk) if item.line > line)
        return pages.take(newer, limit=limit, size=_size)


def list_before(
    session: Session, job_id: str, *, line: int, limit: int, after: int = 0, where: LogFilter = EVERY_LINE
) -> FactPage[LogLine]:
    """Returns the newest of the lines numbered below `line` and above `after`, oldest first: as many as `list_after`.

    `has_more`: whether there are older ones.
    """
    # The chunk that has line `after + 1` may start before it.
    start = func.coalesce(_first_of_chunk(job_id, after + 1).scalar_subquery(), 1)
    query = _chunks(job_id, where).where(LogChunk.first < line, LogChunk.first >= start)
    with closing(session.scalars(query.order_by(LogChunk.first.desc()))) as chunks:
        newest_first = (item for chunk in chunks for item in reversed(lines_of(chunk)) if after < item.line < line)
        page = pages.take(newest_first, limit=limit, size=_size)
    return FactPage(page.items[::-1], page.has_more)


def list_newest(session: Session, job_id: str, *, attempt: int, rank: int | None) -> list[LogLine]:
    """Returns the last lines of the newest attempt, of one rank or of all, oldest first: at most 300.

    They are looked for in the last 400 chunks and 4 Mi characters of the log.
    """
    query = select(LogChunk).where(LogChunk.job_id == job_id).order_by(LogChunk.first.desc()).limit(MOST_CHUNKS)
    newest_first: list[LogLine] = []
    characters = 0
    with closing(session.scalars(query.execution_options(yield_per=16))) as chunks:
        for chunk in chunks:
            characters += len(chunk.text)
            if chunk.attempt == attempt and rank in {None, chunk.rank}:
                newest_first += reversed(lines_of(chunk))
            if len(newest_first) >= _MOST_NEWEST or characters > MOST_CHARACTERS or chunk.attempt < attempt:
                break
    return newest_first[:_MOST_NEWEST][::-1]


def read_chunks(
    session: Session, job_id: str, line: int, where: LogFilter = EVERY_LINE, *, to: int = END
) -> Generator[LogChunk]:
    """Yields the chunks that have lines numbered from `line` to `to`, in order. Reads rows as they are needed."""
    start = func.coalesce(_first_of_chunk(job_id, line).scalar_subquery(), 1)
    query = _chunks(job_id, where).where(LogChunk.first >= start, LogChunk.first <= to).order_by(LogChunk.first)
    with closing(session.scalars(query)) as chunks:
        yield from chunks


@contextmanager
def read_pieces(session: Session, job_id: str, *, line: int, where: LogFilter, to: int) -> Generator[Generator[Lines]]:
    """Yields what yields the stored pieces of the log that have lines from `line` to `to`, in order, as it is read."""
    with closing(read_chunks(session, job_id, line, where, to=to)) as chunks:
        yield (Lines(chunk.first, chunk.time, chunk.text) for chunk in chunks)


def lines_of(chunk: LogChunk) -> list[LogLine]:
    """Returns the chunk's lines, each with its number."""
    time = to_time(chunk.time)
    return [
        _to_line(chunk, number, text, time) for number, text in enumerate(chunk.text.split("\n"), start=chunk.first)
    ]


def line_of(chunk: LogChunk, number: int, text: str) -> LogLine:
    """Returns the chunk's line of this number and text."""
    return _to_line(chunk, number, text, to_time(chunk.time))


def _to_line(chunk: LogChunk, number: int, text: str, time: datetime) -> LogLine:
    values = {"line": number, "time": time, "attempt": chunk.attempt, "rank": chunk.rank}
    return LogLine.model_validate({**values, "stream": chunk.stream, "text": text})


def _first_of_chunk(job_id: str, line: int) -> Select[int]:
    # The last chunk that starts at or before a line contains it: the key finds it.
    return select(func.max(LogChunk.first)).where(LogChunk.job_id == job_id, LogChunk.first <= line)


def _chunks(job_id: str, where: LogFilter) -> Select[LogChunk]:
    query = select(LogChunk).where(LogChunk.job_id == job_id).execution_options(yield_per=16)
    for column, wanted in (
        (LogChunk.rank, where.rank),
        (LogChunk.attempt, where.attempt),
        (LogChunk.stream, where.stream),
    ):
        query = query if wanted is None else query.where(column == wanted)
    return query.where(LogChunk.rank.is_(None)) if where.launcher else query


def _size(line: LogLine) -> int:
    return len(line.text.encode())
