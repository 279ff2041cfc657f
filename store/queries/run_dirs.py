"""Reads which jobs of a worker's run directories exist, have ended or were deleted."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from store.db.database import now_us
from store.db.tables import Attempt, DeletedJob, Job
from store.facts.attempts import KnownJob


def known_jobs(session: Session, job_ids: Collection[str]) -> dict[str, KnownJob]:
    """Returns those of `job_ids` that exist, by id."""
    query = select(Job.id, Job.finished_at).where(Job.id.in_(job_ids))
    found = {row.id: KnownJob(row.finished_at is not None, {}) for row in session.execute(query)}
    age = (now_us() - Attempt.ended_at).label("age")
    for row in session.execute(select(Attempt.job_id, Attempt.number, age).where(Attempt.job_id.in_(job_ids))):
        found[row.job_id].attempts[row.number] = row.age
    return found


def deleted_among(session: Session, job_ids: Collection[str]) -> list[str]:
    """Returns those of `job_ids` that were deleted."""
    return list(session.scalars(select(DeletedJob.job_id).where(DeletedJob.job_id.in_(job_ids))))


def owners_with_attempts(session: Session) -> set[str]:
    """Returns the owners of jobs that have an attempt which has not ended."""
    return set(session.scalars(select(Job.owner).join(Attempt).where(Attempt.ended_at.is_(None)).distinct()))


def specs_with_attempts(session: Session, *, owner: str) -> list[dict[str, Any]]:
    """Returns the specs of an owner's jobs that have an attempt which has not ended."""
    return list(session.scalars(select(Job.spec).join(Attempt).where(Attempt.ended_at.is_(None), Job.owner == owner)))
