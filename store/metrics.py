"""Metric series: small integer keys, clustered by series, attempt and step."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Insert, Subquery, func, or_, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from store.tables import Attempt, Point, Series


@dataclass(frozen=True, slots=True)
class NewPoint:
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
    """One attempt's points; None joins all, each step from the latest attempt that trained it."""


def add(session: Session, job_id: str, *, attempt: int, points: Sequence[NewPoint]) -> None:
    """Stores points; one that is there already is replaced. The series' newest value follows."""
    if not points:
        return
    latest = {point.key: point.value for point in points}
    session.execute(
        _upsert(session, Series, keys=("job_id", "key"), replaced=("latest",)),
        [{"job_id": job_id, "key": key, "latest": value} for key, value in latest.items()],
    )
    ids = {row.key: row.id for row in session.execute(select(Series.id, Series.key).where(Series.job_id == job_id))}
    rows = {(ids[point.key], point.step): point for point in points}
    session.execute(
        _upsert(session, Point, keys=("series_id", "attempt", "step"), replaced=("value", "time")),
        [
            {"series_id": series, "attempt": attempt, "step": step, "value": point.value, "time": point.time}
            for (series, step), point in rows.items()
        ],
    )


def latest(session: Session, job_ids: Sequence[str]) -> dict[str, dict[str, float]]:
    """The newest value of each series, by job."""
    found: dict[str, dict[str, float]] = {job_id: {} for job_id in job_ids}
    query = select(Series.job_id, Series.key, Series.latest).where(Series.job_id.in_(job_ids)).order_by(Series.key)
    for row in session.execute(query):
        found[row.job_id][row.key] = row.latest
    return found


def read(session: Session, job_id: str, where: PointFilter) -> dict[str, list[tuple[int, float, int, int]]]:
    """Points of each series as `(step, value, time, attempt)`, by step; a series without points is an empty list."""
    query = select(Series.id, Series.key).where(Series.job_id == job_id).order_by(Series.key)
    if where.keys:
        query = query.where(Series.key.in_(where.keys))
    visible = _visible(job_id)
    return {row.key: _points(session, row.id, where, visible) for row in session.execute(query).all()}


def _points(
    session: Session, series_id: int, where: PointFilter, visible: Subquery
) -> list[tuple[int, float, int, int]]:
    query = select(Point.step, Point.value, Point.time, Point.attempt).where(Point.series_id == series_id)
    if where.attempt is not None:
        query = query.where(Point.attempt == where.attempt)
    else:
        query = query.join(visible, visible.c.number == Point.attempt)
        query = query.where(or_(visible.c.last.is_(None), Point.step <= visible.c.last))
    if where.from_step is not None:
        query = query.where(Point.step >= where.from_step)
    if where.to_step is not None:
        query = query.where(Point.step <= where.to_step)
    rows = session.execute(query.order_by(Point.step, Point.attempt))
    # Two attempts may both have measured the step at which the later one resumed: the later one's counts.
    return list({row[0]: (row[0], row[1], row[2], row[3]) for row in rows}.values())


def _visible(job_id: str) -> Subquery:
    """Each attempt with the last step that no later attempt trained again; NULL where there is no later one."""
    later = func.min(Attempt.start_step).over(order_by=Attempt.number.desc(), rows=(None, -1))
    return select(Attempt.number, later.label("last")).where(Attempt.job_id == job_id).subquery()


def _upsert(
    session: Session, table: type[Series] | type[Point], *, keys: tuple[str, ...], replaced: tuple[str, ...]
) -> Insert:
    dialect = session.get_bind().dialect.name
    statement = postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
    return statement.on_conflict_do_update(
        index_elements=list(keys), set_={name: getattr(statement.excluded, name) for name in replaced}
    )
