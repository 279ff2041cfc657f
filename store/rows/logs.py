"""Logs: chunks of lines, numbered through the whole job in the order in which they were relayed."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from sqlalchemy import func, insert, select, update
from sqlalchemy.orm import Session

from store.db.tables import Job, LogChunk


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


def after(session: Session, job_id: str, *, line: int, limit: int, rank: int | None = None) -> list[Line]:
    """Returns up to `limit` lines numbered above `line`, oldest first."""
    # The last chunk that starts at or before the first wanted line contains it: the key finds it.
    start = select(func.max(LogChunk.first)).where(LogChunk.job_id == job_id, LogChunk.first <= line + 1)
    query = select(LogChunk).where(
        LogChunk.job_id == job_id, LogChunk.first >= func.coalesce(start.scalar_subquery(), 1)
    )
    if rank is not None:
        query = query.where(LogChunk.rank == rank)
    found: list[Line] = []
    with closing(session.scalars(query.order_by(LogChunk.first).execution_options(yield_per=16))) as chunks:
        for chunk in chunks:
            found.extend(item for item in lines(chunk) if item.line > line)
            if len(found) >= limit:
                break
    return found[:limit]


def tail(session: Session, job_id: str, *, count: int, rank: int | None = None) -> list[Line]:
    """Returns the last `count` lines, oldest first."""
    query = select(LogChunk).where(LogChunk.job_id == job_id)
    if rank is not None:
        query = query.where(LogChunk.rank == rank)
    found: list[Line] = []
    with closing(session.scalars(query.order_by(LogChunk.first.desc()).execution_options(yield_per=16))) as chunks:
        for chunk in chunks:
            found[:0] = lines(chunk)
            if len(found) >= count:
                break
    return found[max(len(found) - count, 0) :]


def lines(chunk: LogChunk) -> list[Line]:
    """Returns the chunk's lines, each with its number."""
    return [
        Line(chunk.first + index, chunk.time, chunk.attempt, chunk.rank, chunk.stream, text)
        for index, text in enumerate(chunk.text.split("\n"))
    ]
