"""The timeline of a job: all that it has stored, in the order of the commits. A stream shows it."""

from collections.abc import Callable, Collection, Iterable, Iterator
from heapq import merge
from typing import TypeVar

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from store.db import columns
from store.jobs.facts import Head
from store.output import logs, points
from store.output.facts import EventFacts, TimelineItem
from store.tables import Job, JobEvent, LogChunk
from store.team import access
from store.team.callers import SERVICE, Caller
from torchyard.contract.views.telemetry import StoredKind

T = TypeVar("T")

_PAGE = 32
"""Rows per read: a chunk may hold a thousand lines."""


def heads(session: Session, job_ids: Collection[str], *, caller: Caller = SERVICE) -> dict[str, Head]:
    """Returns the heads of the jobs that exist, and that the caller may read, by id."""
    query = select(Job.id, Job.position, Job.version).where(Job.id.in_(job_ids), access.readable(caller))
    return {row.id: Head(row.position, row.version) for row in session.execute(query)}


def after(
    session: Session, job_id: str, position: int, *, kinds: frozenset[StoredKind] = frozenset()
) -> Iterator[TimelineItem]:
    """Yields what is stored after `position`, of some kinds or of all, in order. Reads rows as they are needed."""
    sources: list[Iterator[TimelineItem]] = []
    if not kinds or kinds - {"metric", "log"}:
        sources.append(_events(session, job_id, position, kinds))
    if not kinds or "metric" in kinds:
        sources.append(_points(session, job_id, position))
    if not kinds or "log" in kinds:
        sources.append(_lines(session, job_id, position))
    yield from merge(*sources, key=lambda item: item.position)


def _events(session: Session, job_id: str, position: int, kinds: frozenset[StoredKind]) -> Iterator[TimelineItem]:
    query = columns.select(EventFacts, JobEvent).where(JobEvent.job_id == job_id).order_by(JobEvent.seq).limit(_PAGE)
    if kinds:
        query = query.where(JobEvent.type.in_(kinds))
    rows = _paged(lambda last: session.execute(query.where(JobEvent.seq > last)).all(), position, lambda row: row.seq)
    events = (EventFacts(*row) for row in rows)
    return (TimelineItem(event.seq, event.type, event.attempt, event) for event in events)  # pyright: ignore[reportArgumentType] - the column's values


def _points(session: Session, job_id: str, position: int) -> Iterator[TimelineItem]:
    found = points.after(session, job_id, position)
    return (TimelineItem(place, "metric", attempt, point) for place, attempt, point in found)


def _lines(session: Session, job_id: str, position: int) -> Iterator[TimelineItem]:
    query = select(LogChunk).where(LogChunk.job_id == job_id).order_by(LogChunk.position).limit(_PAGE)
    start = select(func.max(LogChunk.position)).where(LogChunk.job_id == job_id, LogChunk.position <= position + 1)
    begin = session.scalar(start) or 0
    rows = _paged(
        lambda last: session.scalars(query.where(LogChunk.position > last)).all(), begin - 1, lambda row: row.position
    )
    for chunk in rows:
        for place, line in enumerate(logs.lines_of(chunk), start=chunk.position):
            if place > position:
                yield TimelineItem(place, "log", chunk.attempt, line)


def _paged(read: Callable[[int], Iterable[T]], begin: int, place: Callable[[T], int]) -> Iterator[T]:
    """Yields rows after `begin`, read page by page."""
    rows = list(read(begin))
    while rows:
        yield from rows
        rows = list(read(place(rows[-1]))) if len(rows) == _PAGE else []
