"""The newest estimates of waiting jobs."""

from collections.abc import Mapping, Sequence

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from store.db.prepared import Prepared, among, texts
from store.db.tables import Base, Estimate, Job
from store.facts.estimates import Estimated
from store.line.conditions import waits

_COLUMNS = ("job_id", "made_at", "expected", "low", "high", "bucket")
_TABLES = Base.metadata.tables
_INSERT = Prepared(_TABLES[Estimate.__tablename__].insert(), columns=_COLUMNS)
_WAITING = Prepared(
    select(Job.id, Job.attempt, Job.lined_at).where(among(_TABLES["jobs"].c.id, "ids"), waits()).order_by(Job.id)
)


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
