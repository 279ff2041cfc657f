"""Lists jobs: filtered and in an order, counted, or queued in the order in which they start."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, func, or_, select
from sqlalchemy.orm import QueryableAttribute, Session, defer

from store.db.stored_spec import StoredCheckpointPolicy
from store.db.tables import Job
from store.queries import queue_positions
from store.rows import access
from store.rows.access import Caller
from store.rows.waiting import is_queued
from torchyard.contract.filters import JobFilter, JobQuery, JobSort
from torchyard.contract.job import JobState


@dataclass(frozen=True)
class ListCursor:
    """A position in a list. `key` is the job's value of the column by which the list is sorted."""

    key: str | int | None
    job_id: str


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


@dataclass(frozen=True)
class _Order:
    column: ColumnElement[Any] | QueryableAttribute[Any]
    descending: bool
    key: Callable[[Job], str | int]


_ORDERS = {
    "name": _Order(Job.name, descending=False, key=lambda job: job.name),
    "owner": _Order(Job.owner, descending=False, key=lambda job: job.owner),
    "state": _Order(Job.state, descending=False, key=lambda job: job.state),
    "priority": _Order(Job.priority, descending=True, key=lambda job: job.priority),
    "started": _Order(func.coalesce(Job.started_at, 0), descending=True, key=lambda job: job.started_at or 0),
    "finished": _Order(func.coalesce(Job.finished_at, 0), descending=True, key=lambda job: job.finished_at or 0),
}
"""How jobs are sorted, besides `created`: equal ones newest first."""

_ERROR_KEYS = ("code", "message", "rank", "exit_code")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_POLICY = StoredCheckpointPolicy()
# Built once: building a statement costs more than executing it.
_WITHOUT_LARGE = [defer(column, raiseload=True) for column in (Job.spec, Job.card, Job.error)]
_LISTED = (
    select(
        Job, Job.spec["checkpoint"].label("checkpoint"), *(Job.error[key].as_json().label(key) for key in _ERROR_KEYS)
    )
    .where(Job.id.in_(bindparam("ids", expanding=True)))
    .options(*_WITHOUT_LARGE)
)


_COUNTS = select(*(func.count(Job.id).filter(Job.state == state) for state in JobState))


def jobs(
    session: Session,
    where: JobQuery,
    *,
    caller: Caller,
    limit: int,
    sort: JobSort = "created",
    after: ListCursor | None = None,
) -> list[ListedJob]:
    """Returns jobs of the caller's lists in an order; with `after`, only those behind that position."""
    # First the ids alone: an index has all that this query reads, and a job's row is large.
    query = select(Job.id).where(*_conditions(where, caller), *_created(where), *_behind(sort, after))
    ids = session.scalars(query.order_by(*_order_of(sort)).limit(limit)).all()
    found = {row.Job.id: row for row in session.execute(_LISTED, {"ids": ids})} if ids else {}
    return [_listed(found[job_id]) for job_id in ids]


def cursor_at(job: Job, sort: JobSort) -> ListCursor:
    """Returns the position of a job in a list of this order."""
    order = _ORDERS.get(sort.removeprefix("-"))
    return ListCursor(None if order is None else order.key(job), job.id)


def has_number(sort: JobSort) -> bool:
    """Returns whether the keys of this order's cursors are numbers."""
    return sort.removeprefix("-") in {"priority", "started", "finished"}


def counts(session: Session, where: JobQuery, *, caller: Caller) -> dict[JobState, int]:
    """Returns how many jobs of the caller's lists are in each state that any of them is in."""
    # Not grouped: SQLite would read each row, to have them in groups, in place of the index that has all columns.
    found = session.execute(_COUNTS.where(*_conditions(where, caller), *_created(where))).one()
    return {state: count for state, count in zip(JobState, found, strict=True) if count}


def changeable(
    session: Session,
    where: JobFilter,
    *conditions: ColumnElement[bool],
    caller: Caller,
    limit: int,
    ending: bool = False,
) -> Sequence[str]:
    """Returns the ids of jobs that the caller may change and that meet further conditions, newest first.

    With `ending`, of those that the caller may end by force.
    """
    query = select(Job.id).where(access.changeable(caller, ending=ending), *_conditions(where, caller), *conditions)
    return session.scalars(query.order_by(Job.id.desc()).limit(limit)).all()


def some(session: Session, job_ids: Collection[str]) -> list[ListedJob]:
    """Returns the jobs with these ids that exist."""
    return [_listed(row) for row in session.execute(_LISTED, {"ids": list(job_ids)})]


@dataclass(frozen=True)
class QueueCursor:
    """A position in the queue, ordered by priority, then by id."""

    priority: int
    job_id: str


@dataclass(frozen=True)
class QueuedJob:
    """A queued job. `row` has neither spec, card nor error, which may be large: reading them raises."""

    place: int
    """Its position in the queue, from 1."""
    row: Job
    resources: dict[str, Any]


_QUEUED = (
    select(Job, Job.spec["resources"].label("resources"))
    .where(is_queued(), Job.priority == bindparam("priority"), Job.id > bindparam("above"))
    .order_by(Job.id)
    .limit(bindparam("most"))
    .options(*_WITHOUT_LARGE)
)
_HIGHEST = select(func.max(Job.priority)).where(is_queued())
_HIGHEST_BELOW = _HIGHEST.where(Job.priority < bindparam("last"))


def queue(session: Session, *, limit: int, after: QueueCursor | None = None) -> list[QueuedJob]:
    """Returns queued jobs in the order in which they start.

    With `after`, only jobs after that position, which need not be occupied any more.
    """
    found: list[tuple[Job, dict[str, Any]]] = []
    if after is not None:
        found += _queued(session, after.priority, limit=limit, above=after.job_id)
    priority = _next_priority(session, after.priority if after is not None else None)
    # One query per priority: each reads one range of the index, already in order.
    while len(found) < limit and priority is not None:
        found += _queued(session, priority, limit=limit - len(found))
        priority = _next_priority(session, priority)
    known = queue_positions.queue_positions(session, [job for job, _ in found])
    return [QueuedJob(known[job.id], job, resources) for job, resources in found]


def _queued(session: Session, priority: int, *, limit: int, above: str = "") -> list[tuple[Job, dict[str, Any]]]:
    rows = session.execute(_QUEUED, {"priority": priority, "above": above, "most": limit})
    return [(row.Job, row.resources) for row in rows]


def _next_priority(session: Session, last: int | None) -> int | None:
    """Returns the highest priority of a queued job; with `last`, only below it."""
    return session.scalar(_HIGHEST) if last is None else session.scalar(_HIGHEST_BELOW, {"last": last})


def _conditions(where: JobFilter, caller: Caller) -> list[ColumnElement[bool]]:
    # Labels are not shown in the rows of jobs that the caller may only list, so they must not find them either.
    found = [access.readable(caller) if where.labels else access.listed(caller)]
    equal = {"owner": Job.owner, "name": Job.name, "trainer": Job.trainer}
    found += [column == getattr(where, name) for name, column in equal.items() if name in where.model_fields_set]
    if where.state:
        found.append(Job.state.in_(where.state))
    if "q" in where.model_fields_set:
        found += _search(where.q, caller)
    return [*found, *(Job.labels[key].as_string() == value for key, value in where.labels)]


def _created(where: JobQuery) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if "created_after" in where.model_fields_set:
        found.append(Job.created_at > _microseconds(where.created_after))
    if "created_before" in where.model_fields_set:
        found.append(Job.created_at < _microseconds(where.created_before))
    return found


def _microseconds(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


def _search(q: str, caller: Caller) -> list[ColumnElement[bool]]:
    text = q.casefold()
    found = [Job.search_text.contains(text, autoescape=True)]
    if access.lists_unreadable(caller):
        shown = [func.lower(column).contains(text, autoescape=True) for column in (Job.name, Job.owner, Job.id)]
        found.append(or_(access.readable(caller), *shown))
    return found


def _order_of(sort: JobSort) -> list[ColumnElement[Any]]:
    order, reverse = _ORDERS.get(sort.removeprefix("-")), sort.startswith("-")
    by_age = Job.id.asc() if reverse else Job.id.desc()
    if order is None:
        return [by_age]
    return [order.column.desc() if order.descending is not reverse else order.column.asc(), by_age]


def _behind(sort: JobSort, after: ListCursor | None) -> list[ColumnElement[bool]]:
    if after is None:
        return []
    order, reverse = _ORDERS.get(sort.removeprefix("-")), sort.startswith("-")
    by_age = Job.id > after.job_id if reverse else Job.id < after.job_id
    if order is None:
        return [by_age]
    column = order.column
    further = column < after.key if order.descending is not reverse else column > after.key
    return [or_(further, and_(column == after.key, by_age))]


def _listed(found: Any) -> ListedJob:
    policy = found.checkpoint or {}
    return ListedJob(
        row=found.Job,
        monitor=policy.get("monitor") or _POLICY.monitor,
        mode=policy.get("mode") or _POLICY.mode,
        error=None if found.code is None else {key: getattr(found, key) for key in _ERROR_KEYS},
    )
