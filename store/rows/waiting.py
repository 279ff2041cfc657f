"""The jobs that wait for devices, in groups of one shape and priority: reading them costs by groups, not by jobs."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, exists, func, literal_column, select, true, update
from sqlalchemy.orm import Session, aliased

from store.db.database import now_us
from store.db.tables import Base, Job
from store.rows.shapes import shape_of
from torchyard.contract.job import JobState

_ADMITTED_AT_ONCE = 1000

PREEMPTING = "preempting"
"""The code of the reason of a job for which room is made."""


@dataclass(frozen=True)
class Waiting:
    """A queued job that nothing of its own holds back, as little of it as a scheduler needs."""

    id: str
    priority: int
    shape: str
    resources: dict[str, Any]


def is_queued(job: type[Job] = Job) -> ColumnElement[bool]:
    # Written out: with a parameter, no planner could tell that an index of the queued jobs will do.
    return job.state == literal_column(f"'{JobState.QUEUED}'")


def waits(job: type[Job] = Job) -> ColumnElement[bool]:
    """Whether the job is queued, and not held back after a failure."""
    return and_(is_queued(job), job.not_before.is_(None))


def _first_of_each_group() -> Any:
    """A loose scan of the index: from the first of each group, straight to the first of the next."""
    this, other = aliased(Job), aliased(Job)
    groups = select(other.id).order_by(other.shape, other.priority, other.id).limit(1)
    heads = select(groups.where(waits(other), other.shape > "").scalar_subquery().label("id"))
    heads = heads.cte("heads", recursive=True)
    # Two steps, as SQLite reads all of a group to find the first pair of a shape and a priority behind it.
    higher = groups.where(waits(other), other.shape == this.shape, other.priority > this.priority)
    others = groups.where(waits(other), other.shape > this.shape)
    step = func.coalesce(higher.correlate(this).scalar_subquery(), others.correlate(this).scalar_subquery())
    heads = heads.union_all(select(step).select_from(heads).join(this, this.id == heads.c.id))
    return select(*_COLUMNS).join(heads, heads.c.id == Job.id)


_COLUMNS = (Job.id, Job.priority, Job.shape, Job.spec["resources"])
_HEADS = _first_of_each_group()
_NEXT = (
    select(*_COLUMNS)
    .where(waits(), Job.shape == bindparam("shape"), Job.priority == bindparam("priority"), Job.id > bindparam("id"))
    .order_by(Job.id)
    .limit(1)
)
# The time in a query of its own, as PostgreSQL searches no index for a clock that goes on.
_NOW = select(now_us()).scalar_subquery()
_HELD_BACK = and_(is_queued(), Job.not_before.is_not(None), Job.not_before <= _NOW)
_SHAPELESS = and_(waits(), Job.shape.is_(None))
_OUTSIDE = select(true()).where(exists().where(_HELD_BACK) | exists().where(_SHAPELESS))
_SHAPE = update(Base.metadata.tables["jobs"]).where(Base.metadata.tables["jobs"].c.id == bindparam("job"))


def group_heads(session: Session) -> list[Waiting]:
    """The first of each group, in no order."""
    return [Waiting(*row) for row in session.execute(_HEADS)]


def next_of_group(session: Session, job: Waiting) -> Waiting | None:
    """The next one of the job's group."""
    row = session.execute(_NEXT, {"shape": job.shape, "priority": job.priority, "id": job.id}).first()
    return None if row is None else Waiting(*row)


def waiting_among(session: Session, job_ids: Collection[str]) -> list[Waiting]:
    """Those of `job_ids` that wait."""
    if not job_ids:
        return []
    query = select(*_COLUMNS).where(Job.id.in_(job_ids), waits(), Job.shape.is_not(None))
    return [Waiting(*row) for row in session.execute(query)]


def any_ungrouped(session: Session) -> bool:
    """Whether jobs wait that are in no group yet, as `admit` would put them."""
    return session.scalar(_OUTSIDE) is not None


def group_jobs(session: Session) -> bool:
    """Puts jobs into their groups: those whose time to be held back is over, and those that an older program has
    queued. True where there may be more."""
    # In one order for all, as two workers that wait for each other's rows would be a deadlock.
    due = select(Job.id).where(_HELD_BACK).order_by(Job.id).limit(_ADMITTED_AT_ONCE).with_for_update()
    released = list(session.scalars(due))
    if released:
        session.execute(update(Job).where(Job.id.in_(released)).values(not_before=None))
    new = select(Job.id, Job.owner, Job.spec["resources"]).where(_SHAPELESS).order_by(Job.id)
    found = session.execute(new.limit(_ADMITTED_AT_ONCE).with_for_update()).all()
    if found:
        shapes = [{"job": job_id, "shape": shape_of(owner, resources)} for job_id, owner, resources in found]
        session.connection().execute(_SHAPE, shapes)
    return max(len(released), len(found)) == _ADMITTED_AT_ONCE
