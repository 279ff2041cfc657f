"""Positions in the queue: the highest priority comes first, then the oldest job. Counted in ranges of an index."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import bindparam, func, select
from sqlalchemy.orm import Session

from store.db.tables import Base
from torchyard.contract.job import JobState

# Built once: building a statement costs more than executing it, and every submission executes these.
_JOBS = Base.metadata.tables["jobs"]
_QUEUED = select(func.count()).select_from(_JOBS).where(_JOBS.c.state == JobState.QUEUED)
_HIGHER = _QUEUED.where(_JOBS.c.priority > bindparam("priority"))
_OLDER = _QUEUED.where(_JOBS.c.priority == bindparam("priority"), _JOBS.c.id < bindparam("id"))
_AHEAD = select(_HIGHER.scalar_subquery() + _OLDER.scalar_subquery())
_RANGE = (
    select(_JOBS.c.id, func.row_number().over(order_by=_JOBS.c.id).label("number"))
    .where(_JOBS.c.state == JobState.QUEUED, _JOBS.c.priority == bindparam("priority"))
    .where(_JOBS.c.id.between(bindparam("first"), bindparam("last")))
    .subquery()
)
_NUMBERED = select(_RANGE.c.id, _RANGE.c.number).where(_RANGE.c.id.in_(bindparam("ids", expanding=True)))


def queue_position(session: Session, job: Any) -> int:
    """Returns the position of a queued job, from 1."""
    return _ahead(session, job.priority, job.id) + 1


def queue_positions(session: Session, rows: Iterable[Any]) -> dict[str, int]:
    """Returns the positions of those jobs that are queued, by id. `rows` have the columns of jobs."""
    by_priority: dict[int, list[str]] = defaultdict(list)
    for row in rows:
        if row.state == JobState.QUEUED:
            by_priority[row.priority].append(row.id)
    found: dict[str, int] = {}
    for priority, job_ids in by_priority.items():
        found |= _of_one_priority(session, priority, job_ids)
    return found


def _of_one_priority(session: Session, priority: int, job_ids: Collection[str]) -> dict[str, int]:
    first, last = min(job_ids), max(job_ids)
    ahead = _ahead(session, priority, first)
    if len(job_ids) == 1:
        return {first: ahead + 1}
    where = {"priority": priority, "first": first, "last": last, "ids": list(job_ids)}
    return {job_id: ahead + number for job_id, number in session.execute(_NUMBERED, where)}


def _ahead(session: Session, priority: int, job_id: str) -> int:
    return session.execute(_AHEAD, {"priority": priority, "id": job_id}).scalar_one()
