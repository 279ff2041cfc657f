"""The estimates of a chaos run, by their rows: who makes them, and whether each was scored as it should be."""

from contextlib import closing

from sqlalchemy import func, select

from store.db.database import Database, now_us
from store.tables import Attempt, Calibration, Estimate, Forecast, ForecastLease, Job
from tests.chaos.deployment import Deployment
from torchyard.contract.errors import Unavailable
from torchyard.contract.states import JobState

_SETTLES_S = 120.0
"""The lease of a worker that has just been killed expires, and another one takes it and scores."""


def holder(made: Deployment) -> str | None:
    """Returns the name of the worker that holds the lease; None if nobody does, or the database does not answer."""
    held = select(ForecastLease.holder).where(ForecastLease.until > now_us())
    try:
        with closing(Database(made.database_url)) as database, database.read() as session:
            found = session.scalar(held)
    except Unavailable:
        return None
    return next((name for name in made.direct if made.worker_id(name) == found), None)


def violations(made: Deployment) -> list[str]:
    """Returns a sentence for each violation, when no job waits any more. Waits for the worker that scores."""
    with closing(Database(made.database_url)) as database:
        made.keep_alive_until(lambda: not _left(database), within=_SETTLES_S, every=1.0)
        return [*_left(database), *_wrong_scores(database)]


def scored(made: Deployment) -> int:
    """Returns how many estimates were scored in the run."""
    with closing(Database(made.database_url)) as database, database.read() as session:
        return session.scalar(select(func.coalesce(func.sum(Calibration.scored), 0))) or 0


def _left(database: Database) -> list[str]:
    """Returns a sentence for each estimate of a job that does not wait, and each that should be scored by now."""
    shown = select(Estimate.job_id).join(Job, Job.id == Estimate.job_id).where(Job.state != JobState.QUEUED)
    unscored = select(Forecast.job_id, Forecast.attempt).join(Job, Job.id == Forecast.job_id)
    unscored = unscored.where(Forecast.scored_at.is_(None), Job.state != JobState.QUEUED)
    try:
        with database.read() as session:
            return [
                *(f"{job_id}: has an estimate, and does not wait" for job_id in session.scalars(shown)),
                *(
                    f"{row.job_id}: an estimate of attempt {row.attempt} is not scored"
                    for row in session.execute(unscored)
                ),
            ]
    except Unavailable as error:
        return [f"the estimates cannot be read: {error.message}"]


def _wrong_scores(database: Database) -> list[str]:
    """Each score is of an attempt that has started, and each was counted once. So few are all kept."""
    counted = select(Calibration.bucket, Calibration.scored)
    rows = select(Forecast.bucket, func.count().label("scored")).where(Forecast.scored_at.is_not(None))
    started = select(Attempt.id).where(Attempt.job_id == Forecast.job_id, Attempt.number == Forecast.attempt)
    strange = select(Forecast.job_id, Forecast.attempt).where(Forecast.scored_at.is_not(None), ~started.exists())
    with database.read() as session:
        wrong = {row.bucket: row.scored for row in session.execute(counted)}
        right = {row.bucket: row.scored for row in session.execute(rows.group_by(Forecast.bucket))}
        found = [
            f"{row.job_id}: attempt {row.attempt} is scored, and has not started" for row in session.execute(strange)
        ]
    if wrong != right:
        found.append(f"the estimates that were scored are counted as {wrong} by bucket, and are {right}")
    return found
