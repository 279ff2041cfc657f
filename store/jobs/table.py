"""What a table of jobs reads beyond a list of them: its columns, an order by one of them, and groups.

Each reads a bounded number of jobs, as an order or groups by a value of the specs have no index. They are generators,
which read a part at a time and open a transaction for each, so that none is open when one yields. All of them raise
Unavailable.
"""

from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
import json
import math
from typing import TypeVar

from sqlalchemy import select
from sqlalchemy.orm import Session

from store.db.database import Snapshots
from store.jobs import columns as job_columns
from store.jobs import filters, known_columns, listing
from store.jobs.facts import Cells, JobList, Order, TableCursor
from store.jobs.known_columns import KnownColumns
from store.pages import FactPage
from store.tables import Job, Sweep
from store.team import access
from store.team.callers import Caller
from torchyard.contract.jobs.columns import Column, MetricColumn, Scalar, SweepColumn
from torchyard.contract.jobs.filters import JobQuery, JobSort
from torchyard.contract.states import JobState

T = TypeVar("T")
Parts = Generator[None, None, T]

_KNOWN_OF = 500
"""The newest jobs of a list of which the columns are known."""
_SPECS_AT_ONCE = 50
_ARRANGED = 10_000
"""The most jobs that are sorted or grouped by a column: the newest ones."""
_AT_ONCE = 500
_MOST_GROUPS = 200


@dataclass(frozen=True)
class Spread:
    """The finite numbers that jobs have in a column."""

    count: int
    mean: float
    std: float | None
    """The standard deviation of a sample; None of a single number, and where it is beyond all floats."""
    min: float
    max: float


@dataclass(frozen=True)
class JobGroupFacts:
    """The jobs of a list that have the same value of a column; None: those without one."""

    value: str | None
    name: str | None
    """Of a sweep."""
    by_state: Mapping[JobState, int]
    columns: Mapping[Column, Spread]
    """Of the columns that were asked for, those in which some of the jobs have numbers."""

    @property
    def key(self) -> str:
        """Names the group among those of the list."""
        return _group_key(self.value)


@dataclass(frozen=True)
class JobGroups:
    """The jobs of a list by the values of a column."""

    groups: Sequence[JobGroupFacts]
    is_complete: bool
    """Whether these are all groups, of all jobs of the list."""


def find_columns(store: Snapshots, where: JobQuery, *, caller: Caller) -> Parts[KnownColumns]:
    """Returns which columns the newest jobs of the list have that the caller may read."""
    with store.read() as session:
        ids = [*_read_states(session, where, caller, limit=_KNOWN_OF)]
    known = known_columns.Finding()
    for some in _parts(ids, _SPECS_AT_ONCE):
        with store.read() as session:
            known.add(session, some)
        yield
    return known.columns()


def list_arranged(
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

    `group`: only those of the group of this column that has this key. `columns`: as in `store.jobs.listing.list_jobs`.
    """
    order = sort if isinstance(sort, Order) else None
    with store.read() as session:
        first: JobSort = "created" if isinstance(sort, Order) else sort
        readable = listing.list_first(session, where, caller=caller, limit=_ARRANGED + 1, sort=first)
    ids, is_complete = [*readable][:_ARRANGED], len(readable) <= _ARRANGED
    wanted = [*(() if order is None else (order.column,)), *(() if group is None else (group[0],))]
    cells: dict[str, Cells] = {}
    for some in _parts([job_id for job_id in ids if readable[job_id]], _AT_ONCE):
        with store.read() as session:
            cells |= job_columns.values(session, some, wanted)
        yield
    if group is not None:
        ids = [job_id for job_id in ids if job_id in cells and __group_key(cells[job_id], group[0]) == group[1]]
    if order is not None:
        ids = _sort(ids, [cells.get(job_id, {}).get(order.column) for job_id in ids], order)
    begin = 0 if after is None else _begin_after(ids, after)
    page = FactPage[str](ids[begin : begin + limit], begin + limit < len(ids))
    following = TableCursor(begin + limit, page.items[-1]) if page.has_more else None
    with store.read() as session:
        listed = {job.id: job for job in listing.list_some(session, page.items)}
        jobs = [listed[job_id] for job_id in page.items if job_id in listed]
        values = job_columns.values_of_listed(session, jobs, columns, caller=caller)
    return JobList(FactPage(jobs, page.has_more), values, is_complete=is_complete, after=following)


def group_jobs(
    store: Snapshots, where: JobQuery, *, caller: Caller, by: Column, columns: Sequence[Column]
) -> Parts[JobGroups]:
    """Returns the groups of the newest jobs of the list that the caller may read, by the values of a column.

    What is in jobs that the caller may only list is not shown, so such jobs are in no group.
    """
    with store.read() as session:
        states = _read_states(session, where, caller, limit=_ARRANGED + 1)
    grouping = _Grouping(by, columns)
    for some in _parts([*states][:_ARRANGED], _AT_ONCE):
        with store.read() as session:
            values = job_columns.values(session, some, [by, *columns])
        for job_id, cells in values.items():
            grouping.add(states[job_id], cells)
        yield
    with store.read() as session:
        return grouping.groups(session, is_complete=len(states) <= _ARRANGED)


class _Grouping:
    """Groups jobs that are added one part after the other."""

    def __init__(self, by: Column, columns: Sequence[Column]) -> None:
        """`columns`: those of whose numbers the spread is asked for."""
        self._by = by
        self._columns = columns
        self._counts: dict[str | None, Counter[JobState]] = defaultdict(Counter)
        self._numbers: dict[tuple[str | None, Column], list[float]] = defaultdict(list)

    def add(self, state: JobState, cells: Cells) -> None:
        """Adds a job with its values of all the columns."""
        value = _name_of(cells.get(self._by))
        self._counts[value][state] += 1
        for column in self._columns:
            number = cells.get(column)
            if isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number):
                self._numbers[value, column].append(number)

    def groups(self, session: Session, *, is_complete: bool) -> JobGroups:
        """Returns the groups, the largest first, and then the jobs without a value. `is_complete`: of the jobs."""
        ordered = sorted(self._counts.items(), key=lambda item: (item[0] is None, -item[1].total(), item[0] or ""))
        shown = ordered[:_MOST_GROUPS]
        names = (
            _names_of_sweeps(session, [value for value, _ in shown if value])
            if isinstance(self._by, SweepColumn)
            else {}
        )
        groups = [
            JobGroupFacts(
                value,
                names.get(value or ""),
                {state: counts[state] for state in JobState if state in counts},
                {
                    column: _spread_of(self._numbers[value, column])
                    for column in self._columns
                    if (value, column) in self._numbers
                },
            )
            for value, counts in shown
        ]
        return JobGroups(groups, is_complete=is_complete and len(ordered) <= _MOST_GROUPS)


def _read_states(session: Session, where: JobQuery, caller: Caller, *, limit: int) -> dict[str, JobState]:
    """Returns the newest jobs of the list that the caller may read, and their states."""
    query = select(Job.id, Job.state).where(
        access.match_readable(caller), *filters.conditions_of(session, where, caller)
    )
    return {row.id: JobState(row.state) for row in session.execute(query.order_by(Job.id.desc()).limit(limit))}


def _parts(ids: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (ids[first : first + size] for first in range(0, len(ids), size))


def __group_key(cells: Cells, column: Column) -> str:
    return _group_key(_name_of(cells.get(column)))


def _begin_after(ids: Sequence[str], after: TableCursor) -> int:
    """Returns where a page begins: after the last job of the page before, or where it was if it has gone."""
    return ids.index(after.job_id) + 1 if after.job_id in ids else min(after.index, len(ids))


def _sort(ids: Sequence[str], values: Sequence[Scalar], order: Order) -> list[str]:
    """Returns the ids by their values: numbers, then texts; after them, in both directions, NaN, and no value."""
    numbers, texts = list[tuple[float, str]](), list[tuple[str, str]]()
    others, without = list[str](), list[str]()
    for job_id, value in zip(ids, values, strict=True):
        number = _number_in(value, order.column)
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


def _number_in(value: Scalar, column: Column) -> float | None:
    """Returns the value as a number, or None if it is not one. A metric's NaN and infinities are stored as texts."""
    if isinstance(value, int | float) or (value is not None and isinstance(column, MetricColumn)):
        return float(value)
    return None


def _name_of(cell: Scalar) -> str | None:
    """Returns the text that names the group of a value."""
    return cell if cell is None or isinstance(cell, str) else json.dumps(cell)


def _spread_of(numbers: Sequence[float]) -> Spread:
    # Of numbers below 1: the squares of large ones are no floats.
    exponent = max(math.frexp(number)[1] for number in numbers)
    scaled = [math.ldexp(number, -exponent) for number in numbers]
    mean = math.fsum(scaled) / len(scaled)
    std = None
    if len(scaled) > 1:
        std = math.sqrt(math.fsum((number - mean) ** 2 for number in scaled) / (len(scaled) - 1))
    return Spread(len(numbers), math.ldexp(mean, exponent), _scale_back(std, exponent), min(numbers), max(numbers))


def _scale_back(std: float | None, exponent: int) -> float | None:
    try:
        return None if std is None else math.ldexp(std, exponent)
    except OverflowError:
        return None


def _names_of_sweeps(session: Session, sweep_ids: Sequence[str]) -> Mapping[str, str]:
    return {row.id: row.name for row in session.execute(select(Sweep.id, Sweep.name).where(Sweep.id.in_(sweep_ids)))}


def _group_key(value: str | None) -> str:
    """Returns the key of the group that has this value. `-` is the key of the jobs without a value."""
    return "-" if value is None else f"={value}"
