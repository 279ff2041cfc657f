"""Metric series. The points of a batch are stored as packed chunks, one for each series."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
import struct
from typing import TYPE_CHECKING

from sqlalchemy import Insert, LargeBinary, func, insert, literal, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.orm import Session

from store.db.tables import Attempt, PointChunk, Series
from store.rows import jobs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

POINT = struct.Struct("<qdq")
"""A packed point: step, value, and time in microseconds since the epoch, by the rank's clock."""

_END = 2**63 - 1
_SPAN = 1 << 16
"""Chunks are joined in spans of this many positions, because a database limits the length of a text."""


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One value of one metric."""

    key: str
    step: int
    value: float
    time: int
    """Microseconds since the epoch, by the rank's clock."""


@dataclass(frozen=True)
class PointFilter:
    keys: tuple[str, ...] = ()
    from_step: int | None = None
    to_step: int | None = None
    attempt: int | None = None
    """Only this attempt's points; None joins all attempts, and each step comes from the latest that trained it."""


@dataclass(frozen=True)
class SeriesColumns:
    """A series by rising step, as arrays of one length."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    times: NDArray[np.int64]
    """Microseconds since the epoch."""
    attempts: NDArray[np.int64]


def add(session: Session, job_id: str, *, attempt: int, points: Sequence[MetricPoint]) -> None:
    """Stores points and updates the newest value of each series."""
    if not points:
        return
    first = jobs.reserve_positions(session, job_id, len(points))
    by_key: dict[str, list[MetricPoint]] = {}
    for point in points:
        by_key.setdefault(point.key, []).append(point)
    session.execute(
        _upsert(session),
        [
            {"job_id": job_id, "key": key, "latest": found[-1].value, "count": len(found)}
            for key, found in by_key.items()
        ],
    )
    ids = {
        row.key: row.id
        for row in session.execute(select(Series.id, Series.key).where(Series.job_id == job_id, Series.key.in_(by_key)))
    }
    rows: list[dict[str, object]] = []
    for key, found in by_key.items():
        packed = b"".join([POINT.pack(point.step, point.value, point.time) for point in found])
        place = {"series_id": ids[key], "first": first, "job_id": job_id, "attempt": attempt}
        rows.append({**place, "count": len(found), "data": packed})
        first += len(found)
    session.execute(insert(PointChunk), rows)


def latest(
    session: Session, job_ids: Sequence[str], *, keys: Collection[str] | None = None
) -> dict[str, dict[str, float]]:
    """Returns the newest value of each series, by job; with `keys`, only of these series."""
    found: dict[str, dict[str, float]] = {job_id: {} for job_id in job_ids}
    query = select(Series.job_id, Series.key, Series.latest).where(Series.job_id.in_(job_ids)).order_by(Series.key)
    if keys is not None:
        query = query.where(Series.key.in_(keys))
    for row in session.execute(query):
        found[row.job_id][row.key] = row.latest
    return found


def read(session: Session, job_id: str, where: PointFilter) -> dict[str, SeriesColumns]:
    """Returns the points of each series, by key. A step that was measured twice has the newest value."""
    query = select(Series.id, Series.key).where(Series.job_id == job_id).order_by(Series.key)
    if where.keys:
        query = query.where(Series.key.in_(where.keys))
    visible = last_visible_steps(session, job_id) if where.attempt is None else None
    return {row.key: _points(session, row.id, where, visible) for row in session.execute(query).all()}


def last_visible_steps(session: Session, job_id: str) -> dict[int, int]:
    """Returns each attempt's last visible step: later attempts that resumed earlier hide the steps beyond.

    Attempt 0 is that of the checkpoint that a retried job started from.
    """
    query = select(Attempt.number, Attempt.start_step).where(Attempt.job_id == job_id).order_by(Attempt.number.desc())
    found: dict[int, int] = {}
    last = _END
    for number, start_step in session.execute(query):
        found[number] = last
        last = min(last, start_step)
    return found | {0: last}


def _points(session: Session, series_id: int, where: PointFilter, visible: dict[int, int] | None) -> SeriesColumns:
    # Imported here, because most processes of the service never read a series.
    import numpy as np

    stored = _stored(session, series_id, attempt=where.attempt)
    packed = np.frombuffer(
        b"".join([data for _, data in stored]), dtype=[("step", "<i8"), ("value", "<f8"), ("time", "<i8")]
    )
    numbers = [number for number, _ in stored]
    counts = np.array([len(data) // POINT.size for _, data in stored], dtype=np.int64)
    attempts = np.repeat(np.array(numbers, dtype=np.int64), counts)
    keep = np.ones(len(packed), dtype=np.bool_)
    if visible is not None:
        last = [visible.get(number, _END) for number in numbers]
        keep &= packed["step"] <= np.repeat(np.array(last, dtype=np.int64), counts)
    if where.from_step is not None:
        keep &= packed["step"] >= where.from_step
    if where.to_step is not None:
        keep &= packed["step"] <= where.to_step
    packed, attempts = packed[keep], attempts[keep]
    order = np.argsort(packed["step"], kind="stable")
    steps = packed["step"][order]
    # Equal steps are in the order in which they were stored, and the last one counts.
    order = order[np.append(steps[1:] != steps[:-1], True)] if len(order) else order
    packed = packed[order]
    return SeriesColumns(packed["step"], packed["value"], packed["time"], attempts[order])


def _stored(session: Session, series_id: int, *, attempt: int | None) -> list[tuple[int, bytes]]:
    """Returns the series' chunks in the order in which they were stored, joined to longer ones, each with its attempt.

    The database joins them: in a slow job each point is a chunk, and reading one row each would take most of the time.
    """
    wanted = PointChunk.series_id == series_id
    if attempt is not None:
        wanted &= PointChunk.attempt == attempt
    span = (PointChunk.first // _SPAN).label("span")
    if session.get_bind().dialect.name == "postgresql":
        data = func.string_agg(PointChunk.data, aggregate_order_by(literal(b""), PointChunk.first), type_=LargeBinary)
        found = session.execute(
            select(PointChunk.attempt, data)
            .where(wanted)
            .group_by(span, PointChunk.attempt)
            .order_by(span, PointChunk.attempt)
        )
        return [(row[0], row[1]) for row in found]
    # Older SQLite cannot order within an aggregate but keeps a subquery's order, and it joins only texts.
    chunks = select(PointChunk.attempt, span, func.hex(PointChunk.data).label("hex")).where(wanted)
    rows = chunks.order_by(PointChunk.first).subquery()
    texts = select(rows.c.attempt, func.group_concat(rows.c.hex, "")).group_by(rows.c.span, rows.c.attempt)
    return [(row[0], bytes.fromhex(row[1])) for row in session.execute(texts.order_by(rows.c.span, rows.c.attempt))]


def _upsert(session: Session) -> Insert:
    new = postgresql.insert(Series) if session.get_bind().dialect.name == "postgresql" else sqlite.insert(Series)
    return new.on_conflict_do_update(
        index_elements=["job_id", "key"],
        set_={"latest": new.excluded.latest, "count": Series.count + new.excluded.count},
    )
