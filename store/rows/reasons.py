"""Why jobs wait: one row for all jobs of a shape, so that a new sentence is one write however many wait."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import delete, literal_column, or_, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from store.db.database import now_us
from store.db.tables import Job, WaitingReason
from store.rows.jobs import Reason
from store.rows.waiting import PREEMPTING, is_queued, waits
from torchyard.contract.job import JobState

# With a limit, so that PostgreSQL looks into the index once for each shape, and joins no thousands of jobs.
_OF_NOBODY = select(Job.id).where(waits(), Job.shape == WaitingReason.shape).limit(1).scalar_subquery().is_(None)

# Built once, as each look at the queue executes them.
_SAID = select(WaitingReason.shape, WaitingReason.code, WaitingReason.message)
_OWN = select(Job.id, Job.reason_message).where(is_queued())
_FAVOURED = _OWN.where(Job.reason_code == literal_column(f"'{PREEMPTING}'"))


@dataclass(frozen=True)
class DisplayedReason:
    """Why a job stands where it stands, and since when, in microseconds."""

    code: str
    message: str
    since: int


def displayed(session: Session, rows: Iterable[Job]) -> dict[str, DisplayedReason]:
    """The reason of each job by its id: the one of its shape where it waits for nothing of its own."""
    jobs = list(rows)
    shapes = {job.shape for job in jobs if _waits_with_others(job)}
    found: dict[str | None, WaitingReason] = {}
    if shapes:
        query = select(WaitingReason).where(WaitingReason.shape.in_(shapes))
        found = {row.shape: row for row in session.scalars(query)}
    return {job.id: _shown(job, found.get(job.shape) if _waits_with_others(job) else None) for job in jobs}


def by_shape(session: Session) -> dict[str, Reason]:
    """What is said of each shape."""
    return {shape: Reason(code, message) for shape, code, message in session.execute(_SAID)}


def of_preemptors(session: Session, job_ids: Collection[str]) -> dict[str, str]:
    """What is said of those of `job_ids` that are queued, and of all other jobs for which room was made."""
    found = {row.id: row.reason_message for row in session.execute(_FAVOURED)}
    if job_ids:
        rows = session.execute(_OWN.where(Job.id.in_(job_ids)))
        found |= {row.id: row.reason_message for row in rows}
    return found


def store_reasons(session: Session, reasons: Mapping[str, Reason]) -> None:
    """Says why the jobs of each shape wait. Writes only what is new."""
    insert = postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
    new = insert(WaitingReason)
    values = {"code": new.excluded.code, "message": new.excluded.message, "since": now_us()}
    statement = new.on_conflict_do_update(
        index_elements=["shape"],
        set_=values,
        where=or_(WaitingReason.message != new.excluded.message, WaitingReason.code != new.excluded.code),
    )
    # In one order for all, as two workers that wait for each other's rows would be a deadlock.
    rows = [
        {"shape": shape, "code": reason.code, "message": reason.message}
        for shape, reason in sorted(reasons.items(), key=lambda item: item[0])
    ]
    if rows:
        session.execute(statement, rows)


def any_unused(session: Session) -> bool:
    """Whether a reason is stored for a shape that no waiting job has."""
    return session.scalar(select(WaitingReason.shape).where(_OF_NOBODY).limit(1)) is not None


def delete_unused(session: Session) -> None:
    """Deletes the reasons of shapes that no waiting job has."""
    idle = select(WaitingReason.shape).where(_OF_NOBODY).order_by(WaitingReason.shape).with_for_update()
    session.execute(delete(WaitingReason).where(WaitingReason.shape.in_(list(session.scalars(idle)))))


def _waits_with_others(job: Job) -> bool:
    return job.state == JobState.QUEUED and job.not_before is None and job.reason_code != PREEMPTING


def _shown(job: Job, common: WaitingReason | None) -> DisplayedReason:
    if common is None:
        return DisplayedReason(job.reason_code, job.reason_message, job.reason_since)
    return DisplayedReason(common.code, common.message, max(common.since, job.reason_since))
