"""What a table of jobs reads beyond a list of them, a part at a time. All of them raise Unavailable.

They are generators: no transaction is open when one yields. They read a bounded number of jobs, as an order or groups
by a value of the specs have no index.
"""

from collections.abc import Generator, Iterator, Sequence
import math
from typing import TypeVar

from sqlalchemy import select
from sqlalchemy.orm import Session

from store.db.database import Snapshots
from store.jobs import columns as job_columns
from store.jobs import groups as job_groups
from store.jobs import known_columns, listing
from store.jobs.columns_facts import Cells, JobGroups, KnownColumns, Order, TableCursor, group_key
from store.jobs.facts import JobList
from store.pages import FactPage
from store.tables import Job
from store.team import access
from store.team.callers import Caller
from torchyard.contract.columns import Column, MetricColumn, Scalar
from torchyard.contract.filters import JobQuery, JobSort
from torchyard.contract.job import JobState

T = TypeVar("T")
Parts = Generator[None, None, T]

_KNOWN_OF = 500
"""The newest jobs of a list of which the columns are told."""
_SPECS_AT_ONCE = 50
_ARRANGED = 10_000
"""The most jobs that are sorted or grouped by a column: the newest ones."""
_AT_ONCE = 500


def columns(store: Snapshots, where: JobQuery, *, caller: Caller) -> Parts[KnownColumns]:
    """Returns which columns the newest jobs of the list have that the caller may read."""
    with store.read() as session:
        found_ids = [*_readable(session, where, caller, limit=_KNOWN_OF)]
    found = known_columns.Finding()
    for some in _parts(found_ids, _SPECS_AT_ONCE):
        with store.read() as session:
            found.add(session, some)
        yield
    return found.columns()


def arranged(
    store: Snapshots,
    where: JobQuery,
    *,
    caller: Caller,
    limit: int,
    sort: JobSort | Order,
    group: tuple[Column, str] | None = None,
    after: TableCursor | None = None,
    columns: Sequence[Column] = (),
) -> Parts[JobList]:
    """Returns jobs of the caller's lists by the values of a column, nothing last; equal ones newest first.

    `group`: only those of the group of this column that has this key. `columns`: as in `store.jobs.reads.find`.
    """
    order = sort if isinstance(sort, Order) else None
    with store.read() as session:
        first: JobSort = "created" if isinstance(sort, Order) else sort
        found = listing.first(session, where, caller=caller, limit=_ARRANGED + 1, sort=first)
    ids, is_complete = [*found][:_ARRANGED], len(found) <= _ARRANGED
    wanted = [*(() if order is None else (order.column,)), *(() if group is None else (group[0],))]
    cells: dict[str, Cells] = {}
    for some in _parts([job_id for job_id in ids if found[job_id]], _AT_ONCE):
        with store.read() as session:
            cells |= job_columns.values(session, some, wanted)
        yield
    if group is not None:
        ids = [job_id for job_id in ids if job_id in cells and _key(cells[job_id], group[0]) == group[1]]
    if order is not None:
        ids = _sorted(ids, [cells.get(job_id, {}).get(order.column) for job_id in ids], order)
    begin = 0 if after is None else _begin(ids, after)
    page = FactPage[str](ids[begin : begin + limit], begin + limit < len(ids))
    behind = TableCursor(begin + limit, page.items[-1]) if page.has_more else None
    with store.read() as session:
        listed = {job.id: job for job in listing.some(session, page.items)}
        jobs = [listed[job_id] for job_id in page.items if job_id in listed]
        values = job_columns.of_listed(session, jobs, columns, caller=caller)
    return JobList(FactPage(jobs, page.has_more), values, is_complete=is_complete, after=behind)


def groups(
    store: Snapshots, where: JobQuery, *, caller: Caller, by: Column, columns: Sequence[Column]
) -> Parts[JobGroups]:
    """Returns the groups of the newest jobs of the list that the caller may read, by the values of a column.

    What is in jobs that the caller may only list is not told, so such jobs are in no group.
    """
    with store.read() as session:
        states = _readable(session, where, caller, limit=_ARRANGED + 1)
    grouping = job_groups.Grouping(by, columns)
    for some in _parts([*states][:_ARRANGED], _AT_ONCE):
        with store.read() as session:
            values = job_columns.values(session, some, [by, *columns])
        for job_id, cells in values.items():
            grouping.add(states[job_id], cells)
        yield
    with store.read() as session:
        return grouping.groups(session, is_complete=len(states) <= _ARRANGED)


def _readable(session: Session, where: JobQuery, caller: Caller, *, limit: int) -> dict[str, JobState]:
    """Returns the newest jobs of the list that the caller may read, and their states."""
    query = select(Job.id, Job.state).where(access.readable(caller), *listing.conditions(session, where, caller))
    return {row.id: JobState(row.state) for row in session.execute(query.order_by(Job.id.desc()).limit(limit))}


def _parts(ids: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (ids[first : first + size] for first in range(0, len(ids), size))


def _key(cells: Cells, column: Column) -> str:
    return group_key(job_groups.value_of(cells.get(column)))


def _begin(ids: Sequence[str], after: TableCursor) -> int:
    """Returns where a page begins: behind the last job of the page before, or where it was if it has gone."""
    return ids.index(after.job_id) + 1 if after.job_id in ids else min(after.place, len(ids))


def _sorted(ids: Sequence[str], values: Sequence[Scalar], order: Order) -> list[str]:
    """Returns the ids by their values: numbers, then texts; behind them, in both directions, NaN, and no value."""
    numbers, texts = list[tuple[float, str]](), list[tuple[str, str]]()
    others, without = list[str](), list[str]()
    for job_id, value in zip(ids, values, strict=True):
        number = _number(value, order.column)
        if value is None:
            without.append(job_id)
        elif number is None:
            texts.append((str(value).casefold(), job_id))
        elif math.isnan(number):
            others.append(job_id)
        else:
            numbers.append((number, job_id))
    numbers.sort(key=lambda item: item[0], reverse=order.reverse)
    texts.sort(key=lambda item: item[0], reverse=order.reverse)
    by_value = [*texts, *numbers] if order.reverse else [*numbers, *texts]
    return [*(job_id for _, job_id in by_value), *others, *without]


def _number(value: Scalar, column: Column) -> float | None:
    """Returns the value as a number, or None if it is not one. A metric's NaN and infinities are stored as texts."""
    if isinstance(value, int | float) or (value is not None and isinstance(column, MetricColumn)):
        return float(value)
    return None
