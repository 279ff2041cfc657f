"""Events of jobs, and the positions of a job at which these, metric points and log lines are."""

from collections.abc import Collection, Sequence
from contextlib import closing
import json
from typing import Any

from sqlalchemy import BigInteger, Select, bindparam, case, func, insert, select, type_coerce, update
from sqlalchemy.orm import Session

from store import pages
from store.announcement import announcement_of
from store.db.columns import Instant
from store.db.database import document, now_us
from store.db.prepared import Prepared
from store.pages import FactPage
from store.tables import Base, Job, JobEvent
from store.team import access
from store.team.callers import Caller
from torchyard.contract.states import JobState, Reason
from torchyard.contract.telemetry.views import EventView

# Built once: building a statement costs more than executing it.
_EVENTS = Base.metadata.tables["job_events"]
_LAST_EVENT = (
    select(_EVENTS.c.time)
    .where(_EVENTS.c.job_id == bindparam("of_job"))
    .order_by(_EVENTS.c.seq.desc())
    .limit(1)
    .scalar_subquery()
)
_REPORTED = func.coalesce(bindparam("reported", type_=BigInteger()), now_us())
_NOT_LATER = case((now_us() < _REPORTED, now_us()), else_=_REPORTED)
# Ranks, workers and the database each have a clock. A job's events never run backwards, and never into the future.
_FIRST_EVENT = Prepared(insert(_EVENTS).inline(), columns=("job_id", "seq", "time", "type", "attempt", "data"))
_NEW_EVENT = insert(_EVENTS).values(time=case((_LAST_EVENT > _NOT_LATER, _LAST_EVENT), else_=_NOT_LATER))


def list_events(session: Session, job_id: str, *, caller: Caller, after: int, limit: int) -> FactPage[EventView]:
    """Returns events with a position above `after`, oldest first, without progress, which only streams show.

    Returns up to `limit` of them, and up to 8 MiB. Raises NotFound if the caller may not read the job.
    """
    access.readable_job(session, job_id, caller)
    query = select_views(job_id).where(JobEvent.seq > after, JobEvent.type != "progress").limit(limit + 1)
    with closing(session.execute(query.execution_options(yield_per=16))) as rows:
        events = (EventView.model_validate({**row}) for row in rows.mappings())
        return pages.take(events, limit=limit, size=lambda event: len(json.dumps(event.data)))


def select_views(job_id: str) -> Select[*tuple[Any, ...]]:
    """Returns the query for the fields of `EventView`, in the order of the events."""
    time = type_coerce(JobEvent.time, Instant).label("time")
    query = select(JobEvent.seq, time, JobEvent.type, JobEvent.attempt, JobEvent.data)
    return query.where(JobEvent.job_id == job_id).order_by(JobEvent.seq)


def newest_messages(session: Session, job_id: str, *, attempt: int, limit: int) -> list[str]:
    """Returns the texts of the newest messages of an attempt, newest first."""
    query = select(JobEvent.data).where(
        JobEvent.job_id == job_id, JobEvent.attempt == attempt, JobEvent.type == "message"
    )
    events = session.scalars(query.order_by(JobEvent.seq.desc()).limit(limit))
    return [str(data.get("text", "")) for data in events]


def append(
    session: Session, job_id: str, *, type: str, attempt: int | None, data: dict[str, Any], time: int | None = None
) -> None:
    """Appends an event to the job, in the caller's transaction.

    `time` is when it happened by the clock of who reports it, in microseconds; None means now. It is stored as a time
    between that of the event before it and now, by the database's clock.
    """
    seq = reserve_positions(session, job_id, 1)
    announcement_of(session).mark_changed(job_id)
    _add(session, job_id, seq=seq, type=type, attempt=attempt, data=data, time=time)


def reserve_positions(session: Session, job_id: str, count: int, **values: Any) -> int:
    """Reserves the next `count` positions of the job and returns the first. `values` are columns to set as well."""
    position = session.execute(
        update(Job).where(Job.id == job_id).values(position=Job.position + count, **values).returning(Job.position)
    ).scalar_one()
    return position - count + 1


def add_first(session: Session, job_ids: Sequence[str], reason: Reason, *, time: int) -> None:
    """Inserts the first events of new jobs: that they are queued since that time."""
    data = document(_moved(None, JobState.QUEUED, reason))
    event = {"seq": 1, "time": time, "type": "state", "attempt": None, "data": data}
    _FIRST_EVENT.write(session, [{**event, "job_id": job_id} for job_id in job_ids])


def add_state(
    session: Session,
    job_id: str,
    *,
    seq: int,
    source: JobState | None,
    target: JobState,
    reason: Reason,
    attempt: int | None,
    detail: dict[str, Any] | None = None,
) -> None:
    """Inserts the event of a state that the job has entered. `detail` goes into its data."""
    data = _moved(source, target, reason) | (detail or {})
    _add(session, job_id, seq=seq, type="state", attempt=attempt, data=data)


def find_causes(session: Session, job_ids: Collection[str]) -> set[tuple[str, str]]:
    """Returns the causes of the warnings that are stored of these jobs, as pairs of job id and cause."""
    cause = JobEvent.data["cause"].as_string()
    messages = select(JobEvent.job_id, cause).where(JobEvent.job_id.in_(job_ids), JobEvent.type == "message")
    return {(row[0], row[1]) for row in session.execute(messages.where(cause.is_not(None)))}


def _add(
    session: Session,
    job_id: str,
    *,
    seq: int,
    type: str,
    attempt: int | None,
    data: dict[str, Any],
    time: int | None = None,
) -> None:
    """Inserts an event at the position `seq`. `append` says what `time` is."""
    values = {"job_id": job_id, "seq": seq, "type": type, "attempt": attempt, "data": data}
    session.execute(_NEW_EVENT, {**values, "of_job": job_id, "reported": time})


def _moved(source: JobState | None, target: JobState, reason: Reason) -> dict[str, Any]:
    return {"from": source, "to": target, "reason": {"code": reason.code, "message": reason.message}}
