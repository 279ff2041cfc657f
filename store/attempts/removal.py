"""What a worker asks before it removes folders: which jobs exist, have ended, or use them."""

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from store.attempts.facts import KnownJob
from store.db.database import now_us
from store.jobs import jobs
from store.tables import Attempt, DeletedJob, Job, KeepRequest


def find_known_jobs(session: Session, job_ids: Collection[str]) -> dict[str, KnownJob]:
    """Returns those of `job_ids` that exist, by id."""
    query = select(Job.id, (now_us() - Job.finished_at).label("age")).where(Job.id.in_(job_ids))
    asked = select(KeepRequest.job_id).where(KeepRequest.job_id.in_(job_ids), KeepRequest.answered_at.is_(None))
    wanted = set(session.scalars(asked))
    jobs_by_id = {
        row.id: KnownJob(row.age is not None, {}, row.age, row.id in wanted) for row in session.execute(query)
    }
    age = (now_us() - Attempt.ended_at).label("age")
    for row in session.execute(select(Attempt.job_id, Attempt.number, age).where(Attempt.job_id.in_(job_ids))):
        jobs_by_id[row.job_id].attempts[row.number] = row.age
    return jobs_by_id


def list_deleted_among(session: Session, job_ids: Collection[str]) -> list[str]:
    """Returns those of `job_ids` that were deleted."""
    return list(session.scalars(select(DeletedJob.job_id).where(DeletedJob.job_id.in_(job_ids))))


def list_active_owners(session: Session) -> set[str]:
    """Returns the owners of jobs that have an attempt which has not ended."""
    return set(session.scalars(select(Job.owner).join(Attempt).where(Attempt.ended_at.is_(None)).distinct()))


def list_active_specs(session: Session, *, owner: str) -> list[Mapping[str, Any]]:
    """Returns the specs of an owner's jobs that have an attempt which has not ended, as they were written."""
    open_ones = select(Job.spec).join(Attempt).where(Attempt.ended_at.is_(None), Job.owner == owner)
    return list(session.scalars(open_ones))


def lock_unknown_attempt(session: Session, job_id: str, number: int) -> bool:
    """Returns whether the job has no attempt of this number. It gets none until the end of the transaction."""
    jobs.lock(session, job_id)  # the next claim waits
    known = select(Attempt.id).where(Attempt.job_id == job_id, Attempt.number == number)
    return session.scalar(known) is None


def lock_without_attempt(session: Session, job_id: str) -> bool:
    """Returns whether no attempt of the job is open. None is claimed until the end of the transaction."""
    jobs.lock(session, job_id)
    is_open = select(Attempt.id).where(Attempt.job_id == job_id, Attempt.ended_at.is_(None))
    return session.scalar(is_open.limit(1)) is None
