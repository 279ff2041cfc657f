"""Jobs that wait for devices, in groups of one shape and priority. Reading them costs by groups, not by jobs."""

from collections.abc import Collection, Iterable
import logging
from typing import Any

from pydantic import ValidationError
from sqlalchemy import ColumnElement, and_, bindparam, exists, func, literal_column, select, true, update
from sqlalchemy.orm import Session, aliased

from scheduling.snapshot import Waiting
from store.db import stored_spec
from store.db.database import now_us
from store.db.tables import Job
from torchyard.contract.job import JobState

logger = logging.getLogger(__name__)

_GROUPED_PER_CALL = 1000


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
    .limit(bindparam("limit"))
)
_ANY_WAITS = select(true()).where(exists().where(waits(), Job.shape > ""))
# In a subquery, because PostgreSQL cannot search an index for a clock that advances.
_NOW = select(now_us()).scalar_subquery()
_HELD_BACK = and_(is_queued(), Job.not_before.is_not(None), Job.not_before <= _NOW)
_ANY_UNGROUPED = select(true()).where(exists().where(_HELD_BACK))


def group_heads(session: Session) -> list[Waiting]:
    """Returns the first job of each group, in no order. Leaves out a group whose request only a newer program reads."""
    return _parsed(session.execute(_HEADS))


def any_waits(session: Session) -> bool:
    """Returns whether there is any group."""
    return session.scalar(_ANY_WAITS) is not None


def next_of_group(session: Session, job: Waiting, *, limit: int) -> list[Waiting]:
    """Returns the next jobs of the same group, the oldest first."""
    where = {"shape": job.shape, "priority": job.priority, "id": job.id, "limit": limit}
    return _parsed(session.execute(_NEXT, where))


def waiting_among(session: Session, job_ids: Collection[str]) -> list[Waiting]:
    """Returns those of `job_ids` that wait."""
    if not job_ids:
        return []
    query = select(*_COLUMNS).where(Job.id.in_(job_ids), waits())
    return _parsed(session.execute(query))


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


def _parsed(rows: Iterable[Any]) -> list[Waiting]:
    found: list[Waiting] = []
    for job_id, priority, shape, resources, owner in rows:
        try:
            found.append(Waiting(job_id, priority, shape, stored_spec.parse_resources(resources), owner))
        except ValidationError:
            logger.warning("%s: this worker does not understand its request: %s", job_id, resources)
    return found
