"""The newest estimates of waiting jobs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import delete, exists, select
from sqlalchemy.orm import Session

from scheduling.calibration import too_few
from store.db.prepared import Prepared, among, texts
from store.queue.estimates_facts import MOST_ESTIMATED, Estimated, EstimateFacts
from store.queue.line.conditions import waits
from store.tables import Base, Calibration, Estimate, ForecastLease, Job

_COLUMNS = ("job_id", "made_at", "expected", "low", "high", "bucket")
_TABLES = Base.metadata.tables
_INSERT = Prepared(_TABLES[Estimate.__tablename__].insert(), columns=_COLUMNS)
_WAITING = Prepared(
    select(Job.id, Job.attempt, Job.lined_at).where(among(_TABLES["jobs"].c.id, "ids"), waits()).order_by(Job.id)
)
_OF_OTHERS = ~exists().where(Job.id == Estimate.job_id, waits()).correlate(Estimate)
_ANY_OF_OTHERS = Prepared(select(Estimate.job_id).where(_OF_OTHERS).limit(1))
_SHOWN = Prepared(
    select(
        ForecastLease.made_at.label("newest"),
        ForecastLease.after,
        Estimate.job_id,
        Estimate.made_at,
        Estimate.expected,
        Estimate.low,
        Estimate.high,
        Estimate.bucket,
    )
    .outerjoin(Estimate, among(_TABLES[Estimate.__tablename__].c.job_id, "ids"))
    .where(ForecastLease.made_at.is_not(None))
)
_SCORED = Prepared(select(Calibration.bucket, Calibration.scored, Calibration.held, Calibration.of))


def of_jobs(session: Session, rows: Iterable[Any], positions: Mapping[str, int]) -> dict[str, EstimateFacts]:
    """Returns when the jobs among `rows` that wait are expected to start, by id, as far as that was estimated.

    `positions`: theirs in the queue. Nothing is read without any. Jobs that are held back after a failure, or
    wait for others, have no estimate.
    """
    waiting = [row.id for row in rows if row.id in positions and row.not_before is None]
    rows_shown = _SHOWN.rows(session, {"ids": texts(waiting)}) if waiting else []
    if not rows_shown:
        return {}
    newest, after = rows_shown[0].newest, rows_shown[0].after
    scored = {row.bucket: row for row in _SCORED.rows(session)} if rows_shown[0].job_id is not None else {}
    shown = {row.job_id: _facts(row, scored) for row in rows_shown if row.job_id is not None}
    if after is not None:
        beyond = (job_id for job_id in waiting if positions[job_id] > MOST_ESTIMATED)
        shown = {job_id: EstimateFacts(None, after, None, newest, 0, 0) for job_id in beyond} | shown
    return shown


def still_waiting(session: Session, estimated: Sequence[Estimated]) -> Mapping[str, int]:
    """Returns which of these jobs still wait for the same attempt, and since when they stand in the line as they do."""
    attempts = {one.job_id: one.attempt for one in estimated}
    rows = _WAITING.rows(session, {"ids": texts(attempts)}) if attempts else []
    return {row.id: row.lined_at for row in rows if row.attempt + 1 == attempts[row.id]}


def replace_all(session: Session, estimated: Sequence[Estimated], *, made_at: int) -> None:
    """Stores these estimates in place of all others."""
    session.execute(delete(Estimate), execution_options={"synchronize_session": False})
    rows = [
        {
            "job_id": one.job_id,
            "made_at": made_at,
            "expected": one.expected,
            "low": one.low,
            "high": one.high,
            "bucket": one.bucket,
        }
        for one in sorted(estimated, key=lambda one: one.job_id)
    ]
    if rows:
        _INSERT.write(session, rows)


def any_of_others(session: Session) -> bool:
    """Returns whether there are estimates of jobs that do not wait."""
    return bool(_ANY_OF_OTHERS.read(session))


def delete_of_others(session: Session) -> None:
    """Deletes the estimates of jobs that do not wait."""
    session.execute(delete(Estimate).where(_OF_OTHERS), execution_options={"synchronize_session": False})


def _facts(row: Any, scored: Mapping[int, Any]) -> EstimateFacts:
    own = scored.get(row.bucket)
    if row.low is None or row.high is None:
        held, of = 0, too_few(sum(one.scored for one in scored.values()))
    else:
        held, of = (0, 0) if own is None else (own.held, own.of)
    return EstimateFacts(row.expected, row.low, row.high, row.made_at, held, of)
