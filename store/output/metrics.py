"""Metric series. The points of a batch are stored as packed chunks, one for each series."""

from collections.abc import Collection, Sequence
import math
import struct
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Insert, Select, bindparam, case, func, insert, select
from sqlalchemy.orm import Session

from store.db.prepared import Prepared, among, texts
from store.db.upsert import upsert
from store.jobs import events as job_events
from store.output.facts import END, MAX_SERIES, MetricPoint
from store.tables import Attempt, Base, PointChunk, Series

POINT = struct.Struct("<qdq")
"""A packed point: step, value, and time in microseconds since the epoch, by the rank's clock."""
BATCH = struct.Struct("<qq")
"""Which points of a joined chunk are of one batch, packed: the position of the first, and how many there are."""
_NAMED = 5
"""The most keys that a message names."""
_MAX_LATEST = 200
"""The most newest values that are answered of one job."""


def _first_latest() -> Select[str, str, float]:
    rank = func.row_number().over(partition_by=Series.job_id, order_by=Series.id).label("rank")
    chosen = select(Series.job_id, Series.key, Series.latest, rank)
    ranked = chosen.where(Series.job_id.in_(bindparam("jobs", expanding=True))).subquery()
    first = select(ranked.c.job_id, ranked.c.key, ranked.c.latest).where(ranked.c.rank <= _MAX_LATEST)
    return first.order_by(ranked.c.key)


# Built once: building a statement costs more than executing it, and every answer with jobs executes these.
_LATEST = _first_latest()
_LATEST_OF_KEYS = (
    select(Series.job_id, Series.key, Series.latest)
    .where(Series.job_id.in_(bindparam("jobs", expanding=True)), Series.key.in_(bindparam("keys", expanding=True)))
    .order_by(Series.key)
)
_SERIES = Base.metadata.tables["series"].c
_FIGURES_OF_KEYS = Prepared(
    select(_SERIES.job_id, _SERIES.key, _SERIES.latest, _SERIES.low, _SERIES.high).where(
        among(_SERIES.job_id, "jobs"), among(_SERIES.key, "keys")
    )
)


class Figures(NamedTuple):
    """The newest value of a metric of a job, and the least and the greatest finite one."""

    latest: float
    low: float | None
    high: float | None


class Added(NamedTuple):
    """What became of new points."""

    stored: int
    """How many are stored."""
    dropped: Sequence[str]
    """The keys of those that are not: new ones, when the job has `MAX_SERIES` series."""


def add(
    session: Session, job_id: str, *, attempt: int, points: Sequence[MetricPoint], source: str | None = None
) -> Added:
    """Stores points and updates the newest value of each series.

    A series has one source. What the script reports itself comes before what another `source` says of the same key:
    those points are left out.
    """
    if not points:
        return Added(0, ())
    by_key: dict[str, list[MetricPoint]] = {}
    for point in points:
        by_key.setdefault(point.key, []).append(point)
    if source is not None:
        for key in _of_others(session, job_id, by_key, source):
            by_key.pop(key, None)
    ids = _ids(session, job_id, by_key)
    new = [key for key in by_key if key not in ids]
    dropped = new[_room(session, job_id) :] if new else []
    for key in dropped:
        del by_key[key]
    if not by_key:
        return Added(0, dropped)
    session.execute(
        _series_upsert(session),
        [
            {
                "job_id": job_id,
                "key": key,
                "source": source,
                "latest": series[-1].value,
                "count": len(series),
                **_extremes(series),
            }
            for key, series in by_key.items()
        ],
    )
    if new:
        ids = _ids(session, job_id, by_key)
    chunks = {ids[key]: series for key, series in by_key.items()}
    _add_chunks(session, job_id, chunks, attempt=attempt)
    return Added(sum(map(len, chunks.values())), dropped)


def limit_notice(dropped: Sequence[str]) -> str:
    """Returns the message to a job's owner that these keys were dropped."""
    named = ", ".join(dropped[:_NAMED]) + (", …" if len(dropped) > _NAMED else "")
    return f"the job has {MAX_SERIES} metrics; further keys are not stored: {named}"


def read_latest(
    session: Session, job_ids: Sequence[str], *, keys: Collection[str] | None = None
) -> dict[str, dict[str, float]]:
    """Returns the newest value of each series by key, by job: of these `keys`, else of each job's first `_MAX_LATEST`
    series.
    """
    latest: dict[str, dict[str, float]] = {job_id: {} for job_id in job_ids}
    if keys is None:
        rows = session.execute(_LATEST, {"jobs": job_ids})
    else:
        rows = session.execute(_LATEST_OF_KEYS, {"jobs": job_ids, "keys": list(keys)})
    for row in rows:
        latest[row.job_id][row.key] = row.latest
    return latest


def read_figures(
    session: Session, job_ids: Collection[str], *, keys: Collection[str]
) -> dict[tuple[str, str], Figures]:
    """Returns the figures of the series with these keys, by job and key."""
    rows = _FIGURES_OF_KEYS.read(session, {"jobs": texts(job_ids), "keys": texts(keys)})
    return {
        (job_id, key): Figures(math.nan if latest is None else latest, low, high)
        for job_id, key, latest, low, high in rows
    }


def read_last_visible_steps(session: Session, job_id: str) -> dict[int, int]:
    """Returns each attempt's last visible step: later attempts that resumed earlier hide the steps beyond.

    Attempt 0 is that of the checkpoint that a retried job started from.
    """
    query = select(Attempt.number, Attempt.hides_after).where(Attempt.job_id == job_id).order_by(Attempt.number.desc())
    last_steps: dict[int, int] = {}
    last = END
    for number, hides_after in session.execute(query):
        last_steps[number] = last
        last = last if hides_after is None else min(last, hides_after)
    return last_steps | {0: last}


def _add_chunks(session: Session, job_id: str, chunks: dict[int, list[MetricPoint]], *, attempt: int) -> None:
    """Stores a chunk of points for each series, given by its id."""
    first = job_events.reserve_positions(session, job_id, sum(len(points) for points in chunks.values()))
    rows: list[dict[str, object]] = []
    for series_id, points in chunks.items():
        packed = b"".join([POINT.pack(point.step, point.value, point.time) for point in points])
        row = {"series_id": series_id, "first": first, "job_id": job_id, "attempt": attempt}
        rows.append({**row, "count": len(points), "data": packed})
        first += len(points)
    session.execute(insert(PointChunk), rows)


def _ids(session: Session, job_id: str, keys: Collection[str]) -> dict[str, int]:
    """Returns the ids of series that exist, by key: at least of those with these keys."""
    query = select(Series.key, Series.id).where(Series.job_id == job_id)
    if len(keys) <= MAX_SERIES:  # a database limits the values of a statement
        query = query.where(Series.key.in_(keys))
    return {row.key: row.id for row in session.execute(query)}


def _of_others(session: Session, job_id: str, keys: Collection[str], source: str) -> list[str]:
    """Returns the keys of series that have another source, such as the script itself: at least of these keys."""
    query = select(Series.key).where(Series.job_id == job_id, Series.source.is_distinct_from(source))
    return list(session.scalars(query.where(Series.key.in_(keys)) if len(keys) <= MAX_SERIES else query))


def _room(session: Session, job_id: str) -> int:
    """Returns how many more series the job may have."""
    count = session.execute(select(func.count()).where(Series.job_id == job_id)).scalar_one()
    return max(MAX_SERIES - count, 0)


def _series_upsert(session: Session) -> Insert:
    new = upsert(session, Series)
    return new.on_conflict_do_update(
        index_elements=["job_id", "key"],
        set_={
            "latest": new.excluded.latest,
            "low": _farther(new.excluded.low, Series.low, new.excluded.low < Series.low),
            "high": _farther(new.excluded.high, Series.high, new.excluded.high > Series.high),
            "count": Series.count + new.excluded.count,
            "source": new.excluded.source,
        },
    )


def _extremes(points: Sequence[MetricPoint]) -> dict[str, float | None]:
    finite = [point.value for point in points if math.isfinite(point.value)]
    return {"low": min(finite, default=None), "high": max(finite, default=None)}


def _farther(new: ColumnElement[Any], old: ColumnElement[Any] | Any, is_farther: ColumnElement[bool]) -> Any:
    """Returns the new value where it is farther than the old one, or there is no old one."""
    return case((new.is_(None), old), (old.is_(None), new), (is_farther, new), else_=old)
