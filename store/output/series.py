"""Reads the metric series of a job, many short ones at once and long ones one by one."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy import Row, func, select
from sqlalchemy.orm import Session

from store.db.database import Snapshots
from store.output import points, series_columns
from store.output.facts import END
from store.output.metrics import POINT, read_last_visible_steps
from store.output.points import StoredPoints
from store.output.series_columns import SeriesColumns
from store.tables import Job, Series
from store.team import access
from store.team.callers import Caller
from torchyard.contract.telemetry.curves import JobKeys, KeyView

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_Row: TypeAlias = "Row[int, str, int, str | None]"

GROUP_POINTS, _GROUP_SERIES = 25_000, 1000
"""The most points, and the most series, that are read at once. A longer series is read by itself, in parts."""
MOST_HELD = 200_000
"""Entries of one series that are in memory at once, besides those of a part: with more, each two or so become one."""


@dataclass(frozen=True)
class PointFilter:
    keys: tuple[str, ...] = ()
    from_step: int | None = None
    to_step: int | None = None
    attempt: int | None = None
    """Only this attempt's points; None joins all attempts, and each step comes from the latest that trained it."""
    tails: bool = False
    """Whether to return what later attempts hide, too. Not restricted by steps."""
    in_points: bool = False
    """Whether a long series is reduced to some of its points; otherwise, to groups of neighbours."""


def list_series(session: Session, job_ids: Iterable[str], *, caller: Caller) -> list[JobKeys]:
    """Returns the metrics that jobs have, by key. Raises NotFound for a job that the caller may not read."""
    return [_keys_of(session, job_id, caller) for job_id in job_ids]


def count_points(session: Session, job_id: str, keys: Sequence[str], *, caller: Caller) -> list[int]:
    """Returns the number of stored points of each series of a job, or of those with these keys.

    Raises NotFound for a job that the caller may not read.
    """
    access.readable_job(session, job_id, caller)
    return [row.points for row in _series(session, job_id, keys)]


def read(store: Snapshots, job_id: str, where: PointFilter) -> Iterator[tuple[str, SeriesColumns] | None]:
    """Yields each series, by key, and None behind each part. A step that was measured twice has the newest value.

    Reads many short series at once, and a long one by itself: no others are in memory then. One of very many points is
    made shorter as it is read. Each part has a transaction of its own: none is open when it yields None.
    """
    with store.read() as session:
        visible = read_last_visible_steps(session, job_id) if where.attempt is None else None
        groups = [*_groups(_series(session, job_id, where.keys))]
    for group in groups:
        if len(group) == 1 and group[0].points > MOST_HELD:
            held = yield from _long(store, group[0].id, where, visible)
            yield group[0].key, replace(held, source=group[0].source)
            continue
        stored = StoredPoints()
        after: int | None = 0
        while after is not None:
            with store.read() as session:
                after = points.read_part(session, [row.id for row in group], stored, after=after, attempt=where.attempt)
            yield None
        for row, columns in zip(group, _columns(stored, [row.id for row in group], where, visible), strict=True):
            yield row.key, columns if row.source is None else replace(columns, source=row.source)


def _long(
    store: Snapshots, series_id: int, where: PointFilter, visible: dict[int, int] | None
) -> Generator[None, None, SeriesColumns]:
    """Reads a series part by part, and keeps few entries of what it has read."""
    held = _Held(in_points=where.in_points)
    after: int | None = 0
    while after is not None:
        stored = StoredPoints()
        with store.read() as session:
            after = points.read_part(session, [series_id], stored, after=after, attempt=where.attempt)
        held.add(next(_columns(stored, [series_id], where, visible)))
        yield
    return held.columns()


class _Held:
    """The entries that are kept of a long series, and of its tails, by attempt."""

    def __init__(self, *, in_points: bool) -> None:
        self._in_points = in_points
        self._shown: list[SeriesColumns] = []
        self._tails: dict[int, list[SeriesColumns]] = {}
        self._size = 1
        """Points of a group."""
        self._count = 0

    def add(self, part: SeriesColumns) -> None:
        """Adds what was read. It is reduced as all before it, and if there is too much, so is everything."""
        self._shown.append(self._reduced(part, self._size))
        for tail in part.tails:
            self._tails.setdefault(int(tail.attempts[0]), []).append(self._reduced(tail, self._size))
        self._count += len(self._shown[-1].steps) + sum(len(tail.steps) for tail in part.tails) // self._size
        if self._count > MOST_HELD:
            self._size *= 2
            self._shown = [self._reduced(series_columns.joined(self._shown), 2)]
            self._tails = {
                number: [self._reduced(series_columns.joined(parts), 2)] for number, parts in self._tails.items()
            }
            held = (*self._shown, *(parts[0] for parts in self._tails.values()))
            self._count = sum(len(part.steps) for part in held)

    def columns(self) -> SeriesColumns:
        tails = tuple(series_columns.joined(self._tails[number]) for number in sorted(self._tails))
        return replace(series_columns.joined(self._shown), tails=tails)

    def _reduced(self, part: SeriesColumns, size: int) -> SeriesColumns:
        if size == 1:
            return part
        if self._in_points:  # three of six may stay, at most
            return series_columns.extremes(part, 3 * size)
        return series_columns.grouped(part, size)


def _keys_of(session: Session, job_id: str, caller: Caller) -> JobKeys:
    (position,) = access.readable_job(session, job_id, caller, Job.position)
    columns = (Series.key, Series.count, func.coalesce(Series.source, "run"), Series.latest, Series.low, Series.high)
    rows = session.execute(select(*columns).where(Series.job_id == job_id).order_by(Series.key))
    keys = [
        KeyView(key=key, count=count, source=source, latest=latest, low=low, high=high)
        for key, count, source, latest, low, high in rows
    ]
    return JobKeys(job_id=job_id, position=position, keys=keys)


def _series(session: Session, job_id: str, keys: Sequence[str]) -> Sequence[_Row]:
    """Returns the id, the key, the number of points and the source of the job's series, or of those with these keys."""
    query = (
        select(Series.id, Series.key, Series.count.label("points"), Series.source)
        .where(Series.job_id == job_id)
        .order_by(Series.key)
    )
    return session.execute(query.where(Series.key.in_(keys)) if keys else query).all()


def _groups(series: Iterable[_Row]) -> Iterator[list[_Row]]:
    """Yields the series in groups that are read together."""
    group: list[_Row] = []
    points = 0
    for row in series:
        if group and (points + row.points > GROUP_POINTS or len(group) == _GROUP_SERIES):
            yield group
            group, points = [], 0
        group.append(row)
        points += row.points
    if group:
        yield group


def _columns(
    stored: StoredPoints, series: Sequence[int], where: PointFilter, visible: dict[int, int] | None
) -> Iterator[SeriesColumns]:
    """Yields the columns of each of the series. What is the same for all points is done for all series at once."""
    # Imported here, because most processes of the service never read a series.
    import numpy as np

    packed = np.frombuffer(b"".join(stored.data), dtype=[("step", "<i8"), ("value", "<f8"), ("time", "<i8")])
    counts = np.array([*map(len, stored.data)], dtype=np.int64) // POINT.size
    numbers = np.array(stored.attempts, dtype=np.int64)
    attempts, owners = np.repeat(numbers, counts), np.repeat(np.array(stored.series, dtype=np.int64), counts)
    shown = np.ones(len(packed), dtype=np.bool_)
    if visible is not None:
        kinds, indices = np.unique(numbers, return_inverse=True)
        last = np.array([visible.get(int(number), END) for number in kinds], dtype=np.int64)
        shown = packed["step"] <= np.repeat(last[indices], counts)
    keep = shown.copy()
    if where.from_step is not None:
        keep &= packed["step"] >= where.from_step
    if where.to_step is not None:
        keep &= packed["step"] <= where.to_step
    everything = bool(keep.all())
    begins, ends = np.searchsorted(owners, series), np.searchsorted(owners, series, side="right")
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        own, numbers_of = packed[begin:end], attempts[begin:end]
        part = slice(None) if everything else keep[begin:end]
        columns = _by_step(own[part], numbers_of[part])
        tails = _tails(own, numbers_of, ~shown[begin:end]) if where.tails and not everything else ()
        yield replace(columns, tails=tails) if tails else columns


def _tails(
    points: NDArray[np.void], attempts: NDArray[np.int64], hidden: NDArray[np.bool_]
) -> tuple[SeriesColumns, ...]:
    """Returns what later attempts hide of a series, by attempt."""
    import numpy as np

    each = [hidden & (attempts == number) for number in np.unique(attempts[hidden])]
    return tuple(_by_step(points[tail], attempts[tail]) for tail in each)


def _by_step(points: NDArray[np.void], attempts: NDArray[np.int64]) -> SeriesColumns:
    return series_columns.in_order(SeriesColumns(points["step"], points["value"], points["time"], attempts))
