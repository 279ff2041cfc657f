"""Estimates that are scored when their jobs have started: the first of each queueing, and one an hour."""

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from store.db.prepared import Prepared, among, texts
from store.db.tables import Base, Forecast
from store.db.upsert import upsert
from store.facts.estimates import Estimated

_HOUR_US = 3_600_000_000
_MOST_HOURS = 7 * 24
"""Nothing is added for a job that waits for longer: a few jobs would be all that the scores tell of."""
_FIRST = Prepared(
    select(Forecast.job_id, Forecast.attempt, Forecast.hour, Forecast.made_at).where(
        Forecast.scored_at.is_(None), among(Base.metadata.tables[Forecast.__tablename__].c.job_id, "ids")
    )
)


def add(session: Session, estimated: Sequence[Estimated], *, made_at: int, lined_at: Mapping[str, int]) -> None:
    """Keeps the estimates that are to be scored.

    `lined_at`: since when the jobs stand in the line as they do. One that moved since `made_at` gets none.
    """
    sound = [one for one in estimated if lined_at[one.job_id] <= made_at]
    kept = _kept(session, sound, lined_at)
    new = [(one, hour) for one in sound if (hour := _hour(kept.get((one.job_id, one.attempt)), made_at)) is not None]
    rows = [
        {
            "job_id": one.job_id,
            "attempt": one.attempt,
            "hour": hour,
            "made_at": made_at,
            "wait_us": one.wait_us,
            "bucket": one.bucket,
            "low": one.low,
            "high": one.high,
        }
        for one, hour in sorted(new, key=lambda item: item[0].job_id)
    ]
    if rows:
        # What is there is scored already, or of an earlier place in the line: `score` drops it first.
        session.execute(upsert(session, Forecast).on_conflict_do_nothing(), rows)


def forget(session: Session, job_ids: Collection[str]) -> None:
    """Drops what is not scored yet of these jobs: they left the line, or moved in it."""
    pending = delete(Forecast).where(Forecast.job_id.in_(job_ids), Forecast.scored_at.is_(None))
    session.execute(pending, execution_options={"synchronize_session": False})


def _kept(
    session: Session, estimated: Sequence[Estimated], lined_at: Mapping[str, int]
) -> dict[tuple[str, int], tuple[int, int]]:
    """Returns when the first estimate of each queueing was made, and the hour of the newest one."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    rows = _FIRST.rows(session, {"ids": texts({one.job_id for one in estimated})}) if estimated else []
    for row in rows:
        if row.made_at >= lined_at[row.job_id]:
            first, newest = found.get((row.job_id, row.attempt), (row.made_at, row.hour))
            found[row.job_id, row.attempt] = min(first, row.made_at), max(newest, row.hour)
    return found


def _hour(kept: tuple[int, int] | None, made_at: int) -> int | None:
    """Returns the hour of an estimate that is to be kept; None of one that is not."""
    if kept is None:
        return 0
    first, newest = kept
    hour = (made_at - first) // _HOUR_US
    return hour if newest < hour < _MOST_HOURS else None
