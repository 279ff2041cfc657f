"""Reads the metric series of a job, many short ones at once and long ones one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy import Row, select
from sqlalchemy.orm import Session

from store.db.database import Snapshots
from store.db.tables import Job, PointChunk, Series
from store.facts.callers import Caller
from store.facts.telemetry import END, KnownSeries
from store.rows import access
from store.rows.metrics import POINT, last_visible_steps

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_Row: TypeAlias = "Row[int, str, int, str | None]"

_GROUP_POINTS, _GROUP_SERIES = 25_000, 1000
"""The most points, and the most series, that are read at once. A longer series is read by itself, in parts."""
_PART_POINTS = 100_000
"""Points after which the read of a long series ends a part."""


@dataclass(frozen=True)
class PointFilter:
    keys: tuple[str, ...] = ()
    from_step: int | None = None
    to_step: int | None = None
    attempt: int | None = None
    """Only this attempt's points; None joins all attempts, and each step comes from the latest that trained it."""
    tails: bool = False
    """Whether to return what later attempts hide, too. Not restricted by steps."""


@dataclass(frozen=True)
class SeriesColumns:
    """A series by rising step, as arrays of one length."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    times: NDArray[np.int64]
    """Microseconds since the epoch."""
    attempts: NDArray[np.int64]
    source: str | None = None
    """Where the points come from, if not from the script itself: `store.rows.metrics.TENSORBOARD`."""
    tails: tuple[SeriesColumns, ...] = ()
    """What later attempts hide, one for each attempt."""


@dataclass(frozen=True)
class JobSeries:
    """The metrics of a job, by key. `position`: the newest in its timeline when they were read."""

    job_id: str
    position: int
    series: Sequence[KnownSeries]


def listed(store: Snapshots, job_ids: Iterable[str], *, caller: Caller) -> list[JobSeries]:
    """Returns the metrics that jobs have. Raises NotFound."""
    with store.read() as session:
        return [_listed(session, job_id, caller) for job_id in job_ids]


def counts(store: Snapshots, job_id: str, keys: Sequence[str], *, caller: Caller) -> list[int]:
    """Returns the number of stored points of each series, or of those with these keys. Raises NotFound."""
    with store.read() as session:
        access.readable_job(session, job_id, caller)
        return [row.points for row in _series(session, job_id, keys)]


def read(store: Snapshots, job_id: str, where: PointFilter) -> Iterator[tuple[str, SeriesColumns] | None]:
    """Yields each series, by key, and None behind each part. A step that was measured twice has the newest value.

    Reads many short series at once, and a long one by itself: no others are in memory then. No transaction is open
    when it yields None.
    """
    with store.read() as session:
        visible = last_visible_steps(session, job_id) if where.attempt is None else None
        groups = [*_groups(_series(session, job_id, where.keys))]
    for group in groups:
        stored: dict[int, list[tuple[int, bytes]]] = {row.id: [] for row in group}
        behind: int | None = 0
        while behind is not None:
            with store.read() as session:
                behind = _read_part(session, stored, behind=behind, attempt=where.attempt)
            yield None
        for row in group:
            columns = _columns(stored.pop(row.id), where, visible)
            yield row.key, replace(columns, source=row.source)


def _listed(session: Session, job_id: str, caller: Caller) -> JobSeries:
    (position,) = access.readable_job(session, job_id, caller, Job.position)
    columns = (Series.key, Series.count, Series.source, Series.latest)
    rows = session.execute(select(*columns).where(Series.job_id == job_id).order_by(Series.key))
    return JobSeries(job_id, position, [KnownSeries(*row) for row in rows])


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
        if group and (points + row.points > _GROUP_POINTS or len(group) == _GROUP_SERIES):
            yield group
            group, points = [], 0
        group.append(row)
        points += row.points
    if group:
        yield group


def _columns(stored: Sequence[tuple[int, bytes]], where: PointFilter, visible: dict[int, int] | None) -> SeriesColumns:
    # Imported here, because most processes of the service never read a series.
    import numpy as np

    packed = np.frombuffer(
        b"".join([data for _, data in stored]), dtype=[("step", "<i8"), ("value", "<f8"), ("time", "<i8")]
    )
    numbers = [number for number, _ in stored]
    counts = np.array([len(data) // POINT.size for _, data in stored], dtype=np.int64)
    attempts = np.repeat(np.array(numbers, dtype=np.int64), counts)
    keep = np.ones(len(packed), dtype=np.bool_)
    tails: tuple[SeriesColumns, ...] = ()
    if visible is not None:
        last = [visible.get(number, END) for number in numbers]
        keep &= packed["step"] <= np.repeat(np.array(last, dtype=np.int64), counts)
        if where.tails:
            hidden = [~keep & (attempts == number) for number in np.unique(attempts[~keep])]
            tails = tuple(_by_step(packed[tail], attempts[tail]) for tail in hidden)
    if where.from_step is not None:
        keep &= packed["step"] >= where.from_step
    if where.to_step is not None:
        keep &= packed["step"] <= where.to_step
    return replace(_by_step(packed[keep], attempts[keep]), tails=tails)


def _by_step(packed: NDArray[np.void], attempts: NDArray[np.int64]) -> SeriesColumns:
    import numpy as np

    steps = packed["step"]
    # Most series are in order already. Equal steps are in the order in which they were stored, and the last one counts.
    if len(steps) > 1 and not (steps[1:] > steps[:-1]).all():
        order = np.argsort(steps, kind="stable")
        order = order[np.append(np.diff(steps[order]) != 0, True)]
        packed, attempts = packed[order], attempts[order]
    return SeriesColumns(packed["step"], packed["value"], packed["time"], attempts)


def _read_part(
    session: Session, stored: dict[int, list[tuple[int, bytes]]], *, behind: int, attempt: int | None
) -> int | None:
    """Adds chunks to each series, in the order in which they were stored, each with its attempt.

    Of one long series it reads a part, behind a position. Returns where the rest begins, None where nothing is left.
    """
    query = select(PointChunk.series_id, PointChunk.first, PointChunk.attempt, PointChunk.data)
    query = query.where(PointChunk.series_id.in_(stored), PointChunk.first > behind)
    query = query.order_by(PointChunk.series_id, PointChunk.first).execution_options(yield_per=200)
    if attempt is not None:
        query = query.where(PointChunk.attempt == attempt)
    size = 0
    with closing(session.execute(query)) as rows:
        for series_id, first, number, data in rows:
            stored[series_id].append((number, data))
            size += len(data)
            if len(stored) == 1 and size >= _PART_POINTS * POINT.size:
                return first
    return None
