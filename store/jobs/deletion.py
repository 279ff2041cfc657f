"""Deletes a job with all that it stored, in one transaction.

A tombstone remains, so that workers remove its run directories. Its blobs are left to the garbage collector.
"""

from datetime import timedelta

from sqlalchemy import Delete, delete, insert, select
from sqlalchemy.orm import Session

from store.announcement import announcement_of
from store.blobs import garbage
from store.db.database import in_us, now_us
from store.jobs import dependencies
from store.output import media
from store.sweeps import trials
from store.tables import (
    Allocation,
    Artifact,
    Attempt,
    AttemptUse,
    BundleUse,
    Checkpoint,
    DeletedJob,
    Dependency,
    Estimate,
    Forecast,
    IdempotencyKey,
    InitialWeights,
    Job,
    JobEvent,
    JobPackages,
    KeepRequest,
    LogChunk,
    PointChunk,
    Reach,
    Series,
    Star,
    WorkFolder,
)
from store.team import access
from store.team.callers import SERVICE, Caller
from torchyard.contract.errors import Conflict
from torchyard.contract.states import JobState

TOMBSTONE_KEPT = timedelta(days=30)
"""A worker that was away for longer removes run directories because the job has no row."""
_TOMBSTONES_PER_CALL = 1000


def delete_job(session: Session, job_id: str, caller: Caller = SERVICE) -> None:
    """Deletes every row of the job. Raises NotFound, Forbidden, and Conflict for a job that has not ended."""
    attempts = select(Attempt.id).where(Attempt.job_id == job_id)
    session.execute(attempts.order_by(Attempt.id).with_for_update())
    job = access.lock(session, job_id, caller)
    if not JobState(job.state).terminal:
        raise Conflict(f"job {job_id} is {job.state}: cancel it first and delete it after its end")
    if job.sweep_id is not None:
        trials.forget_job(session, job)
    listed = session.scalars(select(Checkpoint.files).where(Checkpoint.job_id == job_id))
    files = {str(file["sha256"]) for files in listed for file in files}
    artifacts = session.scalars(select(Artifact.sha256).where(Artifact.job_id == job_id))
    garbage.add_blobs(session, {*files, *artifacts, *media.remove(session, job_id)})
    _execute(session, delete(Allocation).where(Allocation.attempt_id.in_(attempts)))
    # A worker of a version before this table leaves the rows of attempts that it ends.
    _execute(session, delete(AttemptUse).where(AttemptUse.attempt_id.in_(attempts)))
    dependencies.note_deleted(session, job)
    stored = (PointChunk, Series, LogChunk, JobEvent, Checkpoint, Artifact, BundleUse, InitialWeights, Dependency, Star)
    for table in (*stored, Estimate, Forecast, JobPackages, KeepRequest, WorkFolder, IdempotencyKey, Reach, Attempt):
        _execute(session, delete(table).where(table.job_id == job_id))
    _execute(session, delete(Job).where(Job.id == job_id))
    session.execute(insert(DeletedJob).values(job_id=job_id))
    announcement_of(session).dequeue(job_id)


def delete_old_tombstones(session: Session) -> None:
    """Deletes some of the tombstones that no worker needs any more."""
    old = DeletedJob.deleted_at < now_us() - in_us(TOMBSTONE_KEPT)
    # Rows that another worker is deleting are skipped: two workers that wait for each other's rows would deadlock.
    some = select(DeletedJob.job_id).where(old).limit(_TOMBSTONES_PER_CALL).with_for_update(skip_locked=True)
    _execute(session, delete(DeletedJob).where(DeletedJob.job_id.in_(some)))


def _execute(session: Session, statement: Delete) -> None:
    session.execute(statement, execution_options={"synchronize_session": False})
