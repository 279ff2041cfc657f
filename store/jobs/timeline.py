"""The timeline of a job: all that it has stored, in the order of the commits. A stream shows it."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import TypeVar

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from store.ids import is_id
from store.jobs import events
from store.jobs.facts import Head, VisibleJobs
from store.output import logs, points
from store.output.facts import TimelineItem
from store.tables import Job, JobEvent, LogChunk
from store.team import access
from store.team.callers import SERVICE, Caller
from torchyard.contract.errors import NotFound
from torchyard.contract.states import JobState
from torchyard.contract.telemetry.views import EventView, StoredKind

T = TypeVar("T")

_PAGE = 32
"""Rows per read: a chunk may hold a thousand lines."""


@dataclass(frozen=True)
class Timeline:
    """A job's state and newest position, and what it has stored after a position, read as it is needed."""

    state: JobState
    position: int
    items: Iterator[TimelineItem]


def read(session: Session, job_id: str, position: int, *, kinds: frozenset[StoredKind] = frozenset()) -> Timeline:
    """Returns what the job has stored after `position`, of some kinds or of all. Its items need the open transaction.

    Raises NotFound.
    """
    state, newest = access.readable_job(session, job_id, SERVICE, Job.state, Job.position)
    return Timeline(JobState(state), newest, after(session, job_id, position, kinds=kinds))


def find_heads(session: Session, job_ids: Sequence[str], *, caller: Caller) -> dict[str, Head]:
    """Returns the heads of the jobs, in this order. Raises NotFound if the caller may not read one of them."""
    known = heads_of(session, [job_id for job_id in job_ids if is_id(job_id, "job")], caller=caller)
    for job_id in job_ids:
        if job_id not in known:
            raise NotFound(f"there is no job {job_id!r}")
    return {job_id: known[job_id] for job_id in job_ids}


def find_visible(session: Session, job_ids: Collection[str], *, caller: Caller) -> VisibleJobs:
    """Returns which of the jobs the caller may read, and which exist."""
    readable = heads_of(session, job_ids, caller=caller)
    return VisibleJobs(frozenset(readable), frozenset(heads_of(session, job_ids)))


def heads_of(session: Session, job_ids: Collection[str], *, caller: Caller = SERVICE) -> dict[str, Head]:
    """Returns the heads of the jobs that exist, and that the caller may read, by id."""
    query = select(Job.id, Job.position, Job.version).where(Job.id.in_(job_ids), access.match_readable(caller))
    return {row.id: Head(row.position, row.version) for row in session.execute(query)}


def after(
    session: Session, job_id: str, position: int, *, kinds: frozenset[StoredKind] = frozenset()
) -> Iterator[TimelineItem]:
    """Yields what is stored after `position`, of some kinds or of all, in order. Reads rows as they are needed."""
    sources: list[Iterator[TimelineItem]] = []
    if not kinds or kinds - {"metric", "log"}:
        sources.append(_read_events(session, job_id, position, kinds))
    if not kinds or "metric" in kinds:
        sources.append(_read_points(session, job_id, position))
    if not kinds or "log" in kinds:
        sources.append(_read_lines(session, job_id, position))
    yield from merge(*sources, key=lambda item: item.position)


def _read_events(session: Session, job_id: str, position: int, kinds: frozenset[StoredKind]) -> Iterator[TimelineItem]:
    query = events.select_views(job_id).limit(_PAGE)
    if kinds:
        query = query.where(JobEvent.type.in_(kinds))
    rows = _read_pages(
        lambda last: session.execute(query.where(JobEvent.seq > last)).mappings(), position, lambda row: row["seq"]
    )
    views = (EventView.model_validate({**row}) for row in rows)
    return (TimelineItem(view.seq, view.type, view.attempt, view) for view in views)


def _read_points(session: Session, job_id: str, position: int) -> Iterator[TimelineItem]:
    stored = points.read_after(session, job_id, position)
    return (TimelineItem(number, "metric", attempt, point) for number, attempt, point in stored)


def _read_lines(session: Session, job_id: str, position: int) -> Iterator[TimelineItem]:
    query = select(LogChunk).where(LogChunk.job_id == job_id).order_by(LogChunk.position).limit(_PAGE)
    start = select(func.max(LogChunk.position)).where(LogChunk.job_id == job_id, LogChunk.position <= position + 1)
    begin = session.scalar(start) or 0
    rows = _read_pages(
        lambda last: session.scalars(query.where(LogChunk.position > last)).all(), begin - 1, lambda row: row.position
    )
    for chunk in rows:
        for number, line in enumerate(logs.lines_of(chunk), start=chunk.position):
            if number > position:
                yield TimelineItem(number, "log", chunk.attempt, line)


def _read_pages(read: Callable[[int], Iterable[T]], begin: int, position_of: Callable[[T], int]) -> Iterator[T]:
    """Yields rows after `begin`, read page by page."""
    rows = list(read(begin))
    while rows:
        yield from rows
        rows = list(read(position_of(rows[-1]))) if len(rows) == _PAGE else []
