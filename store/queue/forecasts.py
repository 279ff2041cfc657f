"""Estimates that are scored when their jobs have started: the first of each queueing, and one an hour."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import and_, delete, exists, func, literal_column, select, tuple_
from sqlalchemy.orm import Session

from store.db.prepared import Prepared, among, texts
from store.db.upsert import upsert
from store.queue.estimates_facts import Estimated
from store.tables import Attempt, Base, Forecast, Job
from torchyard.contract.states import JobState

_HOUR_US = 3_600_000_000
_MOST_HOURS = 7 * 24
"""Nothing is added for a job that waits for longer: a few jobs would be all that the scores tell of."""
_AT_ONCE = 1000
"""Forecasts of one transaction."""
_FIRST = Prepared(
    select(
        Forecast.job_id,
        Forecast.attempt,
        func.min(Forecast.made_at).label("first"),
        func.max(Forecast.hour).label("newest"),
    )
    .join(Job, Job.id == Forecast.job_id)
    .where(
        Forecast.scored_at.is_(None),
        Job.lined_at <= Forecast.made_at,
        among(Base.metadata.tables[Forecast.__tablename__].c.job_id, "ids"),
    )
    .group_by(Forecast.job_id, Forecast.attempt)
)
_KEY = tuple_(Forecast.job_id, Forecast.attempt, Forecast.hour)
_STILL_WAITS = exists().where(
    Job.id == Forecast.job_id,
    Job.state == literal_column(f"'{JobState.QUEUED}'"),
    Job.attempt + 1 == Forecast.attempt,
    Job.lined_at <= Forecast.made_at,
)
_HAVE_ENDED = and_(Forecast.scored_at.is_(None), ~_STILL_WAITS)
_ANY_ENDED = Prepared(select(Forecast.job_id).where(_HAVE_ENDED).limit(1))
_ENDED = Prepared(
    select(
        Forecast.job_id,
        Forecast.attempt,
        Forecast.hour,
        Forecast.made_at,
        Forecast.wait_us,
        Forecast.bucket,
        Forecast.low,
        Forecast.high,
        Attempt.started_at,
    )
    .outerjoin(Attempt, and_(Attempt.job_id == Forecast.job_id, Attempt.number == Forecast.attempt))
    .where(_HAVE_ENDED)
    # Those that are scored come first, so that who scores until there are none has scored all.
    .order_by(Attempt.started_at.is_(None), Forecast.job_id, Forecast.attempt, Forecast.hour)
    .limit(_AT_ONCE)
    # Whoever deletes a job waits for these rows. Nobody waits for those of a job that is being deleted.
    .with_for_update(of=Forecast, skip_locked=True)
)


class Ended(NamedTuple):
    """A forecast whose job has left the line since, or waits for another attempt."""

    job_id: str
    attempt: int
    hour: int
    made_at: int
    wait_us: int
    bucket: int
    low: int | None
    high: int | None
    started_at: int | None
    """None: it left the line without a start, or moved in it."""

    @property
    def key(self) -> tuple[str, int, int]:
        return self.job_id, self.attempt, self.hour


def add(session: Session, estimated: Sequence[Estimated], *, made_at: int, lined_at: Mapping[str, int]) -> None:
    """Keeps the estimates that are to be scored.

    `lined_at`: since when the jobs stand in the line as they do. One that moved since `made_at` gets none.
    """
    sound = [one for one in estimated if lined_at[one.job_id] <= made_at]
    kept = _read_times(session, sound)
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
        # What is there is scored already, or of an earlier position in the line: `score` drops it first.
        session.execute(upsert(session, Forecast).on_conflict_do_nothing(), rows)


def any_ended(session: Session) -> bool:
    """Returns whether `lock_ended` would return any."""
    return bool(_ANY_ENDED.read(session))


def lock_ended(session: Session) -> list[Ended]:
    """Locks forecasts that are not scored yet and whose jobs do not wait any more as they did then: some, if there are
    many. Returns them in the order in which the jobs started. Rows of a job that is being deleted are left out.
    """
    ended = [Ended(*row) for row in _ENDED.rows(session)]
    return sorted(ended, key=lambda one: (one.started_at or 0, one.made_at, one.key))


def drop(session: Session, ended: Iterable[Ended]) -> None:
    """Deletes forecasts that come neither true nor false: their jobs left the line without a start, or moved in it."""
    keys = sorted(one.key for one in ended)
    if keys:
        unscored = delete(Forecast).where(_KEY.in_(keys), Forecast.scored_at.is_(None))
        session.execute(unscored, execution_options={"synchronize_session": False})


def forget(session: Session, job_id: str) -> None:
    """Drops what is not scored yet of a job that leaves the line without a start, or moves in it.

    What has ended is found by `lock_ended`, too, but not that a job was paused, queued again and started since.
    """
    unscored = delete(Forecast).where(Forecast.job_id == job_id, Forecast.scored_at.is_(None))
    session.execute(unscored, execution_options={"synchronize_session": False})


def _read_times(session: Session, estimated: Sequence[Estimated]) -> dict[tuple[str, int], tuple[int, int]]:
    """Returns when the first estimate of each queueing was made, and the hour of the newest one."""
    rows = _FIRST.rows(session, {"ids": texts({one.job_id for one in estimated})}) if estimated else []
    return {(row.job_id, row.attempt): (row.first, row.newest) for row in rows}


def _hour(times: tuple[int, int] | None, made_at: int) -> int | None:
    """Returns the hour of an estimate that is to be kept; None of one that is not."""
    if times is None:
        return 0
    first, newest = times
    hour = (made_at - first) // _HOUR_US
    return hour if newest < hour < _MOST_HOURS else None
