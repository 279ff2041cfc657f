"""Lists jobs: filtered and in an order, counted, or queued in the order in which they start."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, bindparam, case, func, literal_column, or_, select
from sqlalchemy.orm import QueryableAttribute, Session

from store import pages
from store.db.prepared import Prepared, among, texts
from store.jobs import counts as job_counts
from store.jobs import initial_files, reasons, show, stars
from store.jobs.facts import JobCounts, ListCursor, ListedJob, QueueCursor, QueuedJob, QueuePage
from store.pages import FactPage
from store.queue import estimates
from store.queue.credits import credits
from store.queue.line.conditions import in_line
from store.queue.line.entries import standing_of
from store.queue.line.line import line_of
from store.queue.line.order import cursor_of
from store.queue.line_facts import Credits, Standing
from store.tables import Base, Job
from store.team import access
from store.team.callers import Caller, lists_unreadable
from torchyard.contract.filters import JobFilter, JobQuery, JobSort
from torchyard.contract.job import JobState
from torchyard.contract.team import Role


@dataclass(frozen=True)
class _Order:
    column: ColumnElement[Any] | QueryableAttribute[Any]
    descending: bool


_ORDERS = {
    "name": _Order(Job.name, descending=False),
    "owner": _Order(Job.owner, descending=False),
    "state": _Order(Job.state, descending=False),
    "priority": _Order(Job.priority, descending=True),
    # With the 0 in the text: an index has no parameters.
    "started": _Order(func.coalesce(Job.started_at, literal_column("0")), descending=True),
    "finished": _Order(func.coalesce(Job.finished_at, literal_column("0")), descending=True),
}
"""How jobs are sorted, besides `created`: equal ones newest first. `store.jobs.facts.sort_key` has their values."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Built once: building a statement costs more than executing it.
_ID = Base.metadata.tables["jobs"].c.id
_LISTED = Prepared(select(*show.LISTED).select_from(reasons.JOINED).where(among(_ID, "ids")))
_ALL_COUNTED, _MOST_COUNTED = 10_000, 1_000
"""How many jobs a list has at most that is counted to its end, and how many are counted of what a longer one finds."""


def jobs(
    session: Session,
    where: JobQuery,
    *,
    caller: Caller,
    limit: int,
    sort: JobSort = "created",
    after: ListCursor | None = None,
) -> FactPage[ListedJob]:
    """Returns jobs of the caller's lists in an order; with `after`, only those behind that position."""
    # First the ids alone: an index has all that this query reads, and a job's row is large.
    connection = session.connection()
    if not where.model_fields_set and after is None:
        beginning = _beginning(caller.name, caller.role, sort)
        found_ids = [*connection.scalars(beginning, {"limit": limit + 1})]
    else:
        query = select(_ID).where(*conditions(session, where, caller)).order_by(*_order_of(sort))
        found_ids = list[str]()
        for behind in _behind(sort, after):
            found_ids += connection.scalars(query.where(*behind).limit(limit + 1 - len(found_ids)))
            if len(found_ids) > limit:
                break
    ids = pages.first(found_ids, limit)
    found = {job.id: job for job in some(session, ids.items)}
    return FactPage([found[job_id] for job_id in ids.items], ids.has_more)


def first(
    session: Session, where: JobQuery, *, caller: Caller, limit: int, sort: JobSort = "created"
) -> dict[str, bool]:
    """Returns the ids of the first jobs of the caller's lists in an order, and whether the caller may read them."""
    may_read = case((access.readable(caller), True), else_=False)
    query = select(Job.id, may_read).where(*conditions(session, where, caller)).order_by(*_order_of(sort))
    return {job_id: bool(read) for job_id, read in session.execute(query.limit(limit))}


def counts(session: Session, where: JobQuery, *, caller: Caller) -> JobCounts:
    """Returns how many jobs of the caller's lists are in each state.

    With other filters than the owner, a list of many jobs is not counted to its end.
    """
    archived = bool(where.archived)
    if where.model_fields_set <= {"owner", "state", "archived"} and not where.state:
        owner = where.owner if "owner" in where.model_fields_set else None
        return JobCounts(job_counts.by_state(session, caller=caller, owner=owner, archived=archived))
    every = [*_conditions(where, caller), *_created(where)]
    if sum(job_counts.by_state(session, caller=caller, archived=archived).values()) <= _ALL_COUNTED:
        return JobCounts(_by_state(session, _counts_of(Job.state).where(*every)))
    newest = select(Job.state).where(*every, *_grams(session, where)).order_by(Job.id.desc()).limit(_MOST_COUNTED)
    found = _by_state(session, _counts_of(newest.subquery().c.state))
    return JobCounts(found, is_complete=sum(found.values()) < _MOST_COUNTED)


def conditions(session: Session, where: JobQuery, caller: Caller) -> list[ColumnElement[bool]]:
    """Returns the conditions that a job is in the list of this filter, for queries that need few of its jobs."""
    return [*_conditions(where, caller), *_created(where), *_grams(session, where)]


def chosen(
    session: Session,
    where: JobFilter,
    *further: ColumnElement[bool],
    caller: Caller,
    limit: int,
) -> Sequence[str]:
    """Returns the ids of jobs of the caller's lists that meet further conditions, newest first."""
    query = select(Job.id).where(*_conditions(where, caller), *further)
    return session.scalars(query.order_by(Job.id.desc()).limit(limit)).all()


def some(session: Session, job_ids: Collection[str]) -> list[ListedJob]:
    """Returns the jobs with these ids that exist."""
    if not job_ids:
        return []
    return show.listed(session, _LISTED.rows(session, {"ids": texts(job_ids)}))


_TOLD = (Job.id, Job.owner, Job.visibility, Job.name, Job.priority, Job.not_before, Job.created_at)
_QUEUED = (
    select(*_TOLD, Job.state, Job.shape, Job.device_request, Job.reason_code, Job.reason_message, Job.reason_since)
    .add_columns(Job.spec["resources"].label("resources"))
    .where(in_line(), Job.id.in_(bindparam("ids", expanding=True)))
)


def queue(session: Session, *, limit: int, after: QueueCursor | None = None) -> QueuePage:
    """Returns queued jobs in the order of the line.

    With `after`, only jobs after that position, which need not be occupied any more.
    """
    line, credit = line_of(session), credits(session)
    page, rows = _page(session, credit, limit=limit, after=after)
    if len(rows) < len(page.items):
        # Redis is not as this transaction sees the jobs: SQL answers, and they are compared afterwards.
        line.distrust([job.member.id for job in page.items if job.member.id not in rows])
        page, rows = _page(session, credit, limit=limit, after=after)
    total = sum(line.buckets().values())
    if not rows:
        return QueuePage([], page.has_more, None, total)
    first = line.positions(credit, page.items[:1])[page.items[0].member.id]
    why = reasons.displayed(session, rows.values())
    places = {job.member.id: place for place, job in enumerate(page.items, start=first)}
    expected = estimates.of_jobs(session, rows.values(), places)
    queued = [
        QueuedJob(
            **{column.key: getattr(rows[job_id], column.key) for column in _TOLD},
            place=place,
            resources=rows[job_id].resources,
            reason=why[job_id],
            estimate=expected.get(job_id),
        )
        for job_id, place in places.items()
    ]
    return QueuePage(queued, page.has_more, cursor_of(page.items[-1], credit), total)


def _page(
    session: Session, credit: Credits, *, limit: int, after: QueueCursor | None
) -> tuple[FactPage[Standing], dict[str, Row[Any]]]:
    """Returns a page of the line, and the rows of those of its jobs that are queued just so, by id."""
    page = pages.first(line_of(session).page(credit, after=after, limit=limit + 1), limit)
    found = {row.id: row for row in session.execute(_QUEUED, {"ids": [job.member.id for job in page.items]})}
    # Neither with another priority, nor as a job of another owner.
    same = {job.member.id for job in page.items if job.member.id in found and standing_of(found[job.member.id]) == job}
    return page, {job_id: found[job_id] for job_id in found if job_id in same}


# Most questions for a list are this one: its statement is built once for a caller, as building takes long.
@lru_cache(maxsize=256)
def _beginning(name: str, role: Role, sort: JobSort) -> Select[str]:
    """Returns the statement for the first `limit` ids of a list without a filter."""
    listed = access.listed(Caller(name, role))
    return select(_ID).where(listed, Job.archived_at.is_(None)).order_by(*_order_of(sort)).limit(bindparam("limit"))


def _conditions(where: JobFilter, caller: Caller) -> list[ColumnElement[bool]]:
    # Neither is shown in the rows of jobs that the caller may only list, so it must not find them either.
    withheld = where.labels or where.model_fields_set & {"init_from", "retry_of", "sweep", "schedule"}
    found = [access.readable(caller) if withheld else access.listed(caller)]
    equal = {"owner": Job.owner, "name": Job.name, "trainer": Job.trainer, "schedule": Job.schedule_id}
    equal["retry_of"] = Job.retry_of
    found += [column == getattr(where, name) for name, column in equal.items() if name in where.model_fields_set]
    if "init_from" in where.model_fields_set:
        found.append(initial_files.starts_from(where.init_from))
    if "sweep" in where.model_fields_set:
        found.append(Job.sweep_id == where.sweep)
    found.append(Job.archived_at.is_not(None) if where.archived else Job.archived_at.is_(None))
    if "starred" in where.model_fields_set:
        found.append(stars.is_starred(caller) if where.starred else ~stars.is_starred(caller))
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
    if lists_unreadable(caller):
        shown = [func.lower(column).contains(text, autoescape=True) for column in (Job.name, Job.owner, Job.id)]
        found.append(or_(access.readable(caller), *shown))
    return found


def _grams(session: Session, where: JobFilter) -> list[ColumnElement[bool]]:
    """Returns the part of `_search` that an index of PostgreSQL answers: each three characters in a row are found."""
    # Only where few jobs are asked for: where most are found, PostgreSQL would call the function for each of them.
    text = where.q.casefold() if "q" in where.model_fields_set else ""
    if len(text) < 3 or session.get_bind().dialect.name != "postgresql":
        return []
    return [func.search_grams(Job.search_text).op("@>", is_comparison=True)(func.search_grams(text))]


def _counts_of(state: ColumnElement[str] | QueryableAttribute[str]) -> Select[*tuple[int, ...]]:
    # Not grouped: SQLite would read each row, to have them in groups, in place of the index that has all columns.
    return select(*(func.count().filter(state == each) for each in JobState))  # pyrefly: ignore[bad-return] it counts ten columns at least


def _by_state(session: Session, counted: Select[*tuple[int, ...]]) -> dict[JobState, int]:
    return {state: count for state, count in zip(JobState, session.execute(counted).one(), strict=True) if count}


def _order_of(sort: JobSort) -> list[ColumnElement[Any]]:
    order, reverse = _ORDERS.get(sort.removeprefix("-")), sort.startswith("-")
    by_age = Job.id.asc() if reverse else Job.id.desc()
    if order is None:
        return [by_age]
    return [order.column.desc() if order.descending is not reverse else order.column.asc(), by_age]


def _behind(sort: JobSort, after: ListCursor | None) -> list[list[ColumnElement[bool]]]:
    """Returns the conditions of the parts that the rest of the list has, one behind the other.

    Each is a range of the order's index; a range of both would be searched from its beginning.
    """
    if after is None:
        return [[]]
    order, reverse = _ORDERS.get(sort.removeprefix("-")), sort.startswith("-")
    by_age = Job.id > after.job_id if reverse else Job.id < after.job_id
    if order is None:
        return [[by_age]]
    column = order.column
    further = column < after.key if order.descending is not reverse else column > after.key
    return [[column == after.key, by_age], [further]]
