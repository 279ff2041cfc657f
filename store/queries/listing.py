"""Lists jobs: filtered and newest first, or queued in the order in which they start."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session, defer

from store.db.stored_spec import StoredCheckpointPolicy
from store.db.tables import Job
from store.queries import queue_positions
from store.rows import access
from store.rows.access import Caller
from torchyard.contract.job import JobState


@dataclass(frozen=True)
class JobFilter:
    """A list shows the jobs that meet every condition. Times are microseconds since the epoch."""

    owner: str | None = None
    states: tuple[JobState, ...] = ()
    name: str | None = None
    trainer: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    created_after: int | None = None
    created_before: int | None = None


@dataclass(frozen=True)
class ListedJob:
    """A job of a list. `row` has neither spec, card nor error, which may be large: reading them raises."""

    row: Job
    monitor: str
    """The metric that decides which checkpoint is the best."""
    mode: str
    """Whether the best is its least or greatest value: `min` or `max`."""
    error: dict[str, Any] | None
    """The error without its traceback."""


_ERROR_KEYS = ("code", "message", "rank", "exit_code")
_POLICY = StoredCheckpointPolicy()
_LISTED = select(
    Job,
    Job.spec[("checkpoint", "monitor")].as_string().label("monitor"),
    Job.spec[("checkpoint", "mode")].as_string().label("mode"),
    *(Job.error[key].as_json().label(key) for key in _ERROR_KEYS),
).options(*(defer(column, raiseload=True) for column in (Job.spec, Job.card, Job.error)))


def newest(
    session: Session, where: JobFilter, *, caller: Caller, limit: int, before: str | None = None
) -> Sequence[ListedJob]:
    """Returns jobs of the caller's lists, newest first; with `before` (an id), only older ones."""
    # Labels are not shown in the rows of jobs that the caller may only list, so they must not find them either.
    allowed = access.readable(caller) if where.labels else access.listed(caller)
    query = _LISTED.where(allowed, *_conditions(where)).order_by(Job.id.desc()).limit(limit)
    if before is not None:
        query = query.where(Job.id < before)
    return [
        ListedJob(
            row=found.Job,
            monitor=found.monitor or _POLICY.monitor,
            mode=found.mode or _POLICY.mode,
            error=None if found.code is None else {key: getattr(found, key) for key in _ERROR_KEYS},
        )
        for found in session.execute(query)
    ]


@dataclass(frozen=True)
class QueueCursor:
    """A position in the queue, ordered by priority, then by id."""

    priority: int
    job_id: str


def queue(session: Session, *, limit: int, after: QueueCursor | None = None) -> list[tuple[int, Job]]:
    """Returns queued jobs in the order in which they start, each with its position in the queue, from 1.

    With `after`, only jobs after that position, which need not be occupied any more.
    """
    found: list[Job] = []
    if after is not None:
        found += _queued(session, after.priority, limit=limit, above=after.job_id)
    priority = _next_priority(session, after.priority if after is not None else None)
    # One query per priority: each reads one range of the index, already in order.
    while len(found) < limit and priority is not None:
        found += _queued(session, priority, limit=limit - len(found))
        priority = _next_priority(session, priority)
    known = queue_positions.queue_positions(session, found)
    return [(known[job.id], job) for job in found]


def _queued(session: Session, priority: int, *, limit: int, above: str = "") -> Sequence[Job]:
    query = select(Job).where(Job.state == JobState.QUEUED, Job.priority == priority, Job.id > above)
    return session.scalars(query.order_by(Job.id).limit(limit)).all()


def _next_priority(session: Session, last: int | None) -> int | None:
    """Returns the highest priority of a queued job; with `last`, only below it."""
    query = select(func.max(Job.priority)).where(Job.state == JobState.QUEUED)
    return session.scalar(query if last is None else query.where(Job.priority < last))


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
