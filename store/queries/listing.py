"""Lists of jobs: filtered and newest first, and the queue in the order in which it starts."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.orm import Session

from store.db.tables import Job
from torchyard.job import JobState


@dataclass(frozen=True)
class JobFilter:
    """Which jobs a list shows: those to which all of it applies. Times are microseconds since the epoch."""

    owner: str | None = None
    states: tuple[JobState, ...] = ()
    name: str | None = None
    trainer: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    created_after: int | None = None
    created_before: int | None = None


def newest(session: Session, where: JobFilter, *, limit: int, before: str | None = None) -> Sequence[Job]:
    """Jobs, newest first, older than `before` (an id)."""
    query = select(Job).where(*_conditions(where)).order_by(Job.id.desc()).limit(limit)
    if before is not None:
        query = query.where(Job.id < before)
    return session.scalars(query).all()


@dataclass(frozen=True)
class Place:
    """A place in the queue: the priority decides, then the id."""

    priority: int
    job_id: str


def queue(
    session: Session, *, limit: int, owner: str | None = None, behind: Place | None = None
) -> list[tuple[int, Job]]:
    """The queued jobs in the order in which they are to start, each with its place in the whole queue from 1.

    `owner` leaves out the jobs of others, and `behind` those up to a place, whether a job is still there or not.
    """
    order = (Job.priority.desc(), Job.id)
    places = (
        select(Job.id, func.row_number().over(order_by=order).label("place"))
        .where(Job.state == JobState.QUEUED)
        .subquery()
    )
    query = select(places.c.place, Job).join(places, places.c.id == Job.id).order_by(*order).limit(limit)
    if owner is not None:
        query = query.where(Job.owner == owner)
    if behind is not None:
        later = and_(Job.priority == behind.priority, Job.id > behind.job_id)
        query = query.where(or_(Job.priority < behind.priority, later))
    return [(place, job) for place, job in session.execute(query)]


def _conditions(where: JobFilter) -> list[ColumnElement[bool]]:
    equal = {Job.owner: where.owner, Job.name: where.name, Job.trainer: where.trainer}
    found: list[ColumnElement[bool]] = [column == value for column, value in equal.items() if value is not None]
    if where.states:
        found.append(Job.state.in_(where.states))
    found += [Job.labels[key].as_string() == value for key, value in where.labels]
    if where.created_after is not None:
        found.append(Job.created_at > where.created_after)
    if where.created_before is not None:
        found.append(Job.created_at < where.created_before)
    return found
