"""Logs: chunks of lines, numbered through the whole job in the order in which they were relayed."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from sqlalchemy import Select, func, insert, select, update
from sqlalchemy.orm import Session

from store.db.tables import Job, LogChunk
from store.rows import pages
from store.rows.pages import RowPage


@dataclass(frozen=True, slots=True)
class NewLines:
    """Whole lines of one stream, without line ends or NULs. `rank` is None for the launcher's own output."""

    rank: int | None
    stream: str
    lines: list[str]


@dataclass(frozen=True, slots=True)
class Line:
    line: int
    time: int
    attempt: int
    rank: int | None
    stream: str
    text: str


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


def after(session: Session, job_id: str, *, line: int, limit: int, rank: int | None = None) -> RowPage[Line]:
    """Returns lines numbered above `line`, oldest first: up to `limit`, and up to 8 MiB."""
    # The last chunk that starts at or before the first wanted line contains it: the key finds it.
    start = select(func.max(LogChunk.first)).where(LogChunk.job_id == job_id, LogChunk.first <= line + 1)
    query = _chunks(job_id, rank).where(LogChunk.first >= func.coalesce(start.scalar_subquery(), 1))
    with closing(session.scalars(query.order_by(LogChunk.first))) as chunks:
        found = (item for chunk in chunks for item in lines(chunk) if item.line > line)
        return pages.take(found, limit=limit, size=_size)


def tail(session: Session, job_id: str, *, count: int, rank: int | None = None) -> list[Line]:
    """Returns the last `count` lines, oldest first, or as many of them as have 8 MiB."""
    query = _chunks(job_id, rank).order_by(LogChunk.first.desc())
    with closing(session.scalars(query)) as chunks:
        newest_first = (item for chunk in chunks for item in reversed(lines(chunk)))
        return pages.take(newest_first, limit=count, size=_size).rows[::-1]


def lines(chunk: LogChunk) -> list[Line]:
    """Returns the chunk's lines, each with its number."""
    return [
        Line(chunk.first + index, chunk.time, chunk.attempt, chunk.rank, chunk.stream, text)
        for index, text in enumerate(chunk.text.split("\n"))
    ]


def _chunks(job_id: str, rank: int | None) -> Select[LogChunk]:
    query = select(LogChunk).where(LogChunk.job_id == job_id).execution_options(yield_per=16)
    return query if rank is None else query.where(LogChunk.rank == rank)


def _size(line: Line) -> int:
    return len(line.text.encode())
