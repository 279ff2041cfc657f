"""Jobs that wait for devices, in groups of one shape and priority. Reading them costs by groups, not by jobs."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, exists, func, literal_column, select, true, update
from sqlalchemy.orm import Session, aliased

from store.db.database import now_us
from store.db.tables import Job
from torchyard.contract.job import JobState

_GROUPED_PER_CALL = 1000

PREEMPTING = "preempting"
"""Reason code of a queued job for which others are being preempted."""


@dataclass(frozen=True)
class Waiting:
    """The columns that a scheduler needs of a queued job that is not held back."""

    id: str
    priority: int
    shape: str
    resources: dict[str, Any]
    owner: str


def is_queued(job: type[Job] = Job) -> ColumnElement[bool]:
    """Returns the condition that the job is queued."""
    # A literal: with a parameter, a planner could not use the partial indexes of queued jobs.
    return job.state == literal_column(f"'{JobState.QUEUED}'")


def waits(job: type[Job] = Job) -> ColumnElement[bool]:
    """Returns the condition that the job is queued and not held back after a failure."""
    return and_(is_queued(job), job.not_before.is_(None))


def _first_of_each_group() -> Any:
    """Builds a loose index scan, which jumps from the first job of each group to the first of the next."""
    this, other = aliased(Job), aliased(Job)
    groups = select(other.id).order_by(other.shape, other.priority, other.id).limit(1)
    heads = select(groups.where(waits(other), other.shape > "").scalar_subquery().label("id"))
    heads = heads.cte("heads", recursive=True)
    # Two steps, because SQLite reads a whole group to find the next pair of shape and priority.
    higher = groups.where(waits(other), other.shape == this.shape, other.priority > this.priority)
    others = groups.where(waits(other), other.shape > this.shape)
    step = func.coalesce(higher.correlate(this).scalar_subquery(), others.correlate(this).scalar_subquery())
    heads = heads.union_all(select(step).select_from(heads).join(this, this.id == heads.c.id))
    return select(*_COLUMNS).join(heads, heads.c.id == Job.id)


_COLUMNS = (Job.id, Job.priority, Job.shape, Job.spec["resources"], Job.owner)
_HEADS = _first_of_each_group()
_NEXT = (
    select(*_COLUMNS)
    .where(waits(), Job.shape == bindparam("shape"), Job.priority == bindparam("priority"), Job.id > bindparam("id"))
    .order_by(Job.id)
    .limit(1)
)
# In a subquery, because PostgreSQL cannot search an index for a clock that advances.
_NOW = select(now_us()).scalar_subquery()
_HELD_BACK = and_(is_queued(), Job.not_before.is_not(None), Job.not_before <= _NOW)
_ANY_UNGROUPED = select(true()).where(exists().where(_HELD_BACK))


def group_heads(session: Session) -> list[Waiting]:
    """Returns the first job of each group, in no order."""
    return [Waiting(*row) for row in session.execute(_HEADS)]


def next_of_group(session: Session, job: Waiting) -> Waiting | None:
    """Returns the next job of the same group."""
    row = session.execute(_NEXT, {"shape": job.shape, "priority": job.priority, "id": job.id}).first()
    return None if row is None else Waiting(*row)


def waiting_among(session: Session, job_ids: Collection[str]) -> list[Waiting]:
    """Returns those of `job_ids` that wait."""
    if not job_ids:
        return []
    query = select(*_COLUMNS).where(Job.id.in_(job_ids), waits())
    return [Waiting(*row) for row in session.execute(query)]


def any_ungrouped(session: Session) -> bool:
    """Returns whether jobs wait that `group_jobs` would put into groups."""
    return session.scalar(_ANY_UNGROUPED) is not None


def group_jobs(session: Session) -> bool:
    """Puts jobs that are no longer held back into their groups. Returns True if there may be more."""
    # Always in one order: two workers that wait for each other's rows would deadlock.
    due = select(Job.id).where(_HELD_BACK).order_by(Job.id).limit(_GROUPED_PER_CALL).with_for_update()
    released = list(session.scalars(due))
    if released:
        session.execute(update(Job).where(Job.id.in_(released)).values(not_before=None))
    return len(released) == _GROUPED_PER_CALL
