"""Deleting a job with all that is stored of it, and the blobs that nothing refers to any more.

The rows go in one transaction, which leaves a tombstone, so that workers remove what they have on their disks, and
the names of the job's blobs, as the removal of a single checkpoint does. Blobs are shared, and a relay may be storing
the same bytes for another job: `collect` works only while no relay is between storing a blob and committing the row
that refers to it.
"""

from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Any

from sqlalchemy import Delete, delete, func, insert, select, true
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Session
from sqlalchemy.sql.expression import column

from store.blobs import Blobs
from store.db.database import Database, in_us, now_us
from store.db.tables import (
    Allocation,
    Attempt,
    Checkpoint,
    DeletedJob,
    Garbage,
    IdempotencyKey,
    Job,
    JobEvent,
    LogChunk,
    PointChunk,
    Series,
)
from store.rows import jobs
from torchyard.errors import Conflict, NotFound
from torchyard.job import JobState

TOMBSTONE_KEPT = timedelta(days=30)
"""A worker that was away for longer finds in no row what it has of the job, and removes it for that."""
_TOMBSTONES_AT_ONCE = 1000


def delete_job(session: Session, job_id: str, *, owner: str | None = None) -> None:
    """Removes the job and every row of it. Raises NotFound, and Conflict for a job that has not ended."""
    job = jobs.lock(session, job_id)
    if job is None or (owner is not None and job.owner != owner):
        raise NotFound(f"there is no job {job_id}")
    if not JobState(job.state).terminal:
        raise Conflict(f"job {job_id} is {job.state}: cancel it first, and delete it when it has ended")
    leave_garbage(session, session.scalars(select(Checkpoint.files).where(Checkpoint.job_id == job_id)))
    attempts = select(Attempt.id).where(Attempt.job_id == job_id)
    _execute(session, delete(Allocation).where(Allocation.attempt_id.in_(attempts)))
    for table in (PointChunk, Series, LogChunk, JobEvent, Checkpoint, IdempotencyKey, Attempt):
        _execute(session, delete(table).where(table.job_id == job_id))
    _execute(session, delete(Job).where(Job.id == job_id))
    session.execute(insert(DeletedJob).values(job_id=job_id))


def deleted_among(session: Session, job_ids: Collection[str]) -> list[str]:
    """Those of `job_ids` that were deleted."""
    return list(session.scalars(select(DeletedJob.job_id).where(DeletedJob.job_id.in_(job_ids))))


def forget(session: Session) -> None:
    """Removes tombstones that no worker needs any more, some at once."""
    old = DeletedJob.deleted_at < now_us() - in_us(TOMBSTONE_KEPT)
    # Those that another worker is forgetting are left to it: two that wait for each other's would be a deadlock.
    some = select(DeletedJob.job_id).where(old).limit(_TOMBSTONES_AT_ONCE).with_for_update(skip_locked=True)
    _execute(session, delete(DeletedJob).where(DeletedJob.job_id.in_(some)))


def leave_garbage(session: Session, listed: Iterable[list[dict[str, Any]]]) -> None:
    """Notes the blobs of checkpoints that go, by the `files` of each, for `collect`. Once in a transaction."""
    # All of them: who else refers to a blob is looked at when it is collected, and may change until then. In one order
    # for all, as two that wait for each other would be a deadlock.
    left = sorted({str(file["sha256"]) for files in listed for file in files})
    if left:
        new = postgresql.insert(Garbage) if _is_postgresql(session) else sqlite.insert(Garbage)
        # The update of a row that is there holds it, so that a collector judges it when this transaction is done.
        new = new.on_conflict_do_update(index_elements=["sha256"], set_={"sha256": new.excluded.sha256})
        session.execute(new, [{"sha256": sha256} for sha256 in left])


def collect(database: Database, blobs: Blobs, *, limit: int = 1000) -> int:
    """Removes blobs that were left as garbage and no checkpoint refers to; how many. Raises Unavailable and OSError.

    Nothing, where a relay is at work: whoever calls next makes up for it.
    """
    with database.read() as session:
        if session.scalars(select(Garbage.sha256).limit(1)).first() is None:
            return 0
    with blobs.alone() as alone:
        if not alone:
            return 0
        with database.write("collect") as session:
            unused = _unused(session, limit=limit)
        # No checkpoint can begin to refer to these: only a relay brings new references, and it waits.
        for sha256 in unused:
            blobs.remove(sha256)
        if unused:
            with database.write("forget") as session:
                _execute(session, delete(Garbage).where(Garbage.sha256.in_(unused)))
    return len(unused)


def _unused(session: Session, *, limit: int) -> set[str]:
    """The next blobs to remove. Those that a checkpoint refers to are garbage no longer."""
    next_ones = select(Garbage.sha256).order_by(Garbage.sha256).limit(limit).with_for_update()
    left = set(session.scalars(next_ones))
    used = _referred_to(session, left) if left else left
    if used:
        _execute(session, delete(Garbage).where(Garbage.sha256.in_(used)))
    return left - used


def _referred_to(session: Session, wanted: Collection[str]) -> set[str]:
    """Those of `wanted` that a checkpoint has among its files: one pass over all checkpoints."""
    if _is_postgresql(session):
        file = func.jsonb_array_elements(Checkpoint.files).table_valued(column("value", JSONB))
        sha256 = file.c.value["sha256"].astext
    else:
        file = func.json_each(Checkpoint.files).table_valued("value")
        sha256 = func.json_extract(file.c.value, "$.sha256")
    query = select(sha256).select_from(Checkpoint).join(file, true()).where(sha256.in_(wanted)).distinct()
    return set(session.scalars(query))


def _execute(session: Session, statement: Delete) -> None:
    session.execute(statement, execution_options={"synchronize_session": False})


def _is_postgresql(session: Session) -> bool:
    return session.get_bind().dialect.name == "postgresql"
