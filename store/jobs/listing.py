"""Lists jobs, filtered and in an order, and counts them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Select, bindparam, case, func, literal_column, select
from sqlalchemy.orm import QueryableAttribute, Session

from store import pages
from store.db.prepared import Prepared, among, texts
from store.jobs import columns as job_columns
from store.jobs import counts as job_counts
from store.jobs import filters, reasons, show
from store.jobs.facts import JobCounts, JobList, ListCursor, ListedJob
from store.pages import FactPage
from store.tables import Base, Job
from store.team import access
from store.team.callers import Caller
from torchyard.contract.jobs.columns import Column
from torchyard.contract.jobs.filters import JobFilter, JobQuery, JobSort
from torchyard.contract.states import JobState
from torchyard.contract.team.roles import Role


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

# Built once: building a statement costs more than executing it.
_ID = Base.metadata.tables["jobs"].c.id
_LISTED = Prepared(select(*show.LISTED).select_from(reasons.JOINED).where(among(_ID, "ids")))
_ALL_COUNTED, _MOST_COUNTED = 10_000, 1_000
"""How many jobs a list has at most that is counted to its end, and how many are counted of what a longer one finds."""


def list_jobs(
    session: Session,
    where: JobQuery,
    *,
    caller: Caller,
    limit: int,
    sort: JobSort,
    after: ListCursor | None,
    counts: bool = False,
    columns: Sequence[Column] = (),
) -> JobList:
    """Returns jobs of the caller's lists. `counts`: also counts them, for the filter without its states.

    `columns`: also returns these values of the jobs.
    """
    page = list_page(session, where, caller=caller, limit=limit, sort=sort, after=after)
    counted = count_states(session, where, caller=caller) if counts else None
    return JobList(page, job_columns.values_of_listed(session, page.items, columns, caller=caller), counted)


def list_page(
    session: Session,
    where: JobQuery,
    *,
    caller: Caller,
    limit: int,
    sort: JobSort = "created",
    after: ListCursor | None = None,
) -> FactPage[ListedJob]:
    """Returns jobs of the caller's lists in an order; with `after`, only those after that position."""
    # First the ids alone: an index has all that this query reads, and a job's row is large.
    connection = session.connection()
    if not where.model_fields_set and after is None:
        beginning = _beginning(caller.name, caller.role, sort)
        ids_and_more = [*connection.scalars(beginning, {"limit": limit + 1})]
    else:
        query = select(_ID).where(*filters.conditions_of(session, where, caller)).order_by(*_order_of(sort))
        ids_and_more = list[str]()
        for part in _parts_after(sort, after):
            ids_and_more += connection.scalars(query.where(*part).limit(limit + 1 - len(ids_and_more)))
            if len(ids_and_more) > limit:
                break
    ids = pages.first(ids_and_more, limit)
    jobs = {job.id: job for job in list_some(session, ids.items)}
    return FactPage([jobs[job_id] for job_id in ids.items], ids.has_more)


def list_first(
    session: Session, where: JobQuery, *, caller: Caller, limit: int, sort: JobSort = "created"
) -> dict[str, bool]:
    """Returns the ids of the first jobs of the caller's lists in an order, and whether the caller may read them."""
    may_read = case((access.match_readable(caller), True), else_=False)
    query = select(Job.id, may_read).where(*filters.conditions_of(session, where, caller)).order_by(*_order_of(sort))
    return {job_id: bool(read) for job_id, read in session.execute(query.limit(limit))}


def count_states(session: Session, where: JobQuery, *, caller: Caller) -> JobCounts:
    """Returns how many jobs of the caller's lists are in each state, for the filter without its states."""
    return count_jobs(session, where.model_copy(update={"state": None}), caller=caller)


def count_jobs(session: Session, where: JobQuery, *, caller: Caller) -> JobCounts:
    """Returns how many jobs of the caller's lists are in each state.

    With other filters than the owner, a list of many jobs is not counted to its end.
    """
    archived = bool(where.archived)
    if where.model_fields_set <= {"owner", "state", "archived"} and not where.state:
        owner = where.owner if "owner" in where.model_fields_set else None
        return JobCounts(job_counts.by_state(session, caller=caller, owner=owner, archived=archived))
    every = [*filters.matches(where, caller), *filters.is_created_within(where)]
    if sum(job_counts.by_state(session, caller=caller, archived=archived).values()) <= _ALL_COUNTED:
        return JobCounts(_by_state(session, _counts_of(Job.state).where(*every)))
    newest = (
        select(Job.state)
        .where(*every, *filters.finds_grams(session, where))
        .order_by(Job.id.desc())
        .limit(_MOST_COUNTED)
    )
    counted = _by_state(session, _counts_of(newest.subquery().c.state))
    return JobCounts(counted, is_complete=sum(counted.values()) < _MOST_COUNTED)


def choose_ids(
    session: Session,
    where: JobFilter,
    *further: ColumnElement[bool],
    caller: Caller,
    limit: int,
) -> Sequence[str]:
    """Returns the ids of jobs of the caller's lists that meet further conditions, newest first."""
    query = select(Job.id).where(*filters.matches(where, caller), *further)
    return session.scalars(query.order_by(Job.id.desc()).limit(limit)).all()


def list_some(session: Session, job_ids: Collection[str]) -> list[ListedJob]:
    """Returns the jobs with these ids that exist."""
    if not job_ids:
        return []
    return show.show_rows(session, _LISTED.rows(session, {"ids": texts(job_ids)}))


# Most questions for a list are this one: its statement is built once for a caller, as building takes long.
@lru_cache(maxsize=256)
def _beginning(name: str, role: Role, sort: JobSort) -> Select[str]:
    """Returns the statement for the first `limit` ids of a list without a filter."""
    listed = access.match_listed(Caller(name, role))
    return select(_ID).where(listed, Job.archived_at.is_(None)).order_by(*_order_of(sort)).limit(bindparam("limit"))


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


def _parts_after(sort: JobSort, after: ListCursor | None) -> list[list[ColumnElement[bool]]]:
    """Returns the conditions of the parts that the rest of the list has, one after the other.

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
