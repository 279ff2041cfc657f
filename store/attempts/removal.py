"""What a worker asks before it removes folders: which jobs exist, have ended, or use them."""

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from store.attempts.facts import KnownJob
from store.db.database import now_us
from store.tables import Attempt, DeletedJob, Job, KeepRequest


def find_known_jobs(session: Session, job_ids: Collection[str], *, asking: str | None = None) -> dict[str, KnownJob]:
    """Returns those of `job_ids` that exist, by id. `asking`: a worker that is told only of jobs that it had.

    With all their attempts: it says of which numbers there are some.
    """
    query = select(Job.id, (now_us() - Job.finished_at).label("age")).where(Job.id.in_(job_ids))
    if asking is not None:
        query = query.where(Job.id.in_(select(Attempt.job_id).where(Attempt.worker_id == asking)))
    asked = select(KeepRequest.job_id).where(KeepRequest.job_id.in_(job_ids), KeepRequest.answered_at.is_(None))
    wanted = set(session.scalars(asked))
    jobs_by_id = {
        row.id: KnownJob(row.age is not None, {}, row.age, row.id in wanted) for row in session.execute(query)
    }
    age = (now_us() - Attempt.ended_at).label("age")
    for row in session.execute(select(Attempt.job_id, Attempt.number, age).where(Attempt.job_id.in_(job_ids))):
        if row.job_id in jobs_by_id:
            jobs_by_id[row.job_id].attempts[row.number] = row.age
    return jobs_by_id


def list_deleted_among(session: Session, job_ids: Collection[str]) -> list[str]:
    """Returns those of `job_ids` that were deleted."""
    return list(session.scalars(select(DeletedJob.job_id).where(DeletedJob.job_id.in_(job_ids))))


def list_active_owners(session: Session, *, asking: str | None = None) -> set[str]:
    """Returns the owners of jobs with an open attempt. `asking`: a worker; only its attempts count."""
    return set(session.scalars(select(Job.owner).join(Attempt).where(*_open_on(asking)).distinct()))


def list_active_specs(session: Session, *, owner: str, asking: str | None = None) -> list[Mapping[str, Any]]:
    """Returns the specs of an owner's jobs that have an attempt which has not ended, as they were written.

    `asking`: a worker; only its attempts count.
    """
    return list(session.scalars(select(Job.spec).join(Attempt).where(*_open_on(asking), Job.owner == owner)))


def _open_on(worker_id: str | None) -> list[ColumnElement[bool]]:
    mine = [] if worker_id is None else [Attempt.worker_id == worker_id]
    return [Attempt.ended_at.is_(None), *mine]
