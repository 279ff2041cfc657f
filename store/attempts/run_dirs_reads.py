"""What a worker reads before it removes folders: which jobs exist, have ended, or use them. All raise Unavailable."""

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import select

from store.attempts.facts import KnownJob
from store.db.database import Snapshots, now_us
from store.tables import Attempt, DeletedJob, Job, KeepRequest


def known_jobs(store: Snapshots, job_ids: Collection[str]) -> dict[str, KnownJob]:
    """Returns those of `job_ids` that exist, by id."""
    with store.read() as session:
        query = select(Job.id, (now_us() - Job.finished_at).label("age")).where(Job.id.in_(job_ids))
        asked = select(KeepRequest.job_id).where(KeepRequest.job_id.in_(job_ids), KeepRequest.answered_at.is_(None))
        wanted = set(session.scalars(asked))
        found = {row.id: KnownJob(row.age is not None, {}, row.age, row.id in wanted) for row in session.execute(query)}
        age = (now_us() - Attempt.ended_at).label("age")
        for row in session.execute(select(Attempt.job_id, Attempt.number, age).where(Attempt.job_id.in_(job_ids))):
            found[row.job_id].attempts[row.number] = row.age
    return found


def deleted_among(store: Snapshots, job_ids: Collection[str]) -> list[str]:
    """Returns those of `job_ids` that were deleted."""
    with store.read() as session:
        return list(session.scalars(select(DeletedJob.job_id).where(DeletedJob.job_id.in_(job_ids))))


def owners_with_attempts(store: Snapshots) -> set[str]:
    """Returns the owners of jobs that have an attempt which has not ended."""
    with store.read() as session:
        return set(session.scalars(select(Job.owner).join(Attempt).where(Attempt.ended_at.is_(None)).distinct()))


def specs_with_attempts(store: Snapshots, *, owner: str) -> list[Mapping[str, Any]]:
    """Returns the specs of an owner's jobs that have an attempt which has not ended, as they were written."""
    open_ones = select(Job.spec).join(Attempt).where(Attempt.ended_at.is_(None), Job.owner == owner)
    with store.read() as session:
        return list(session.scalars(open_ones))
