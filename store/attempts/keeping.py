"""Requests to store files of a job's working folder. The worker on whose host it is answers them."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import bindparam, delete, exists, func, literal_column, select, union_all, update
from sqlalchemy.orm import Session

from store.announcement import announcement_of
from store.attempts.facts import KeepOrder
from store.cluster import workers
from store.db import columns
from store.db.database import now_us
from store.db.prepared import Prepared
from store.jobs import jobs
from store.output import artifacts
from store.output.facts import NewArtifact
from store.tables import Attempt, Job, KeepRequest, Worker
from store.team import access, audit
from store.team.callers import SERVICE, Caller
from torchyard.contract.errors import Conflict, NotFound, StaleClaim
from torchyard.contract.files.views import KeepView

# Built once, because each heartbeat of a remote worker executes it.
_IS_ASKED = Prepared(
    select(literal_column("1")).where(
        exists().where(KeepRequest.worker_id == bindparam("worker"), KeepRequest.answered_at.is_(None))
    )
)


def ask(session: Session, job_id: str, paths: Sequence[str], caller: Caller = SERVICE) -> KeepView:
    """Asks the worker on whose host the job's working folder is to store files of it.

    The same request again changes nothing until it is answered. Raises NotFound, Forbidden, and Conflict for a job
    without such a folder, a worker that is away, and while the worker answers another request for the job.
    """
    job = access.lock(session, job_id, caller)
    attempt, worker, alive = _folder_of(session, job)
    before = session.get(KeepRequest, job_id)
    if before is not None and before.answered_at is None and before.worker_id == worker.id:
        if before.paths != list(paths):
            raise Conflict(f"{worker.name} is storing {', '.join(before.paths)} of this job: try again afterwards")
        audit.add(session, caller, "job.keep", job_id)
        return _view(session, before)
    if not alive:
        raise Conflict(f"{worker.name}, which has the job's working folder, is offline: try again when it is back")
    session.execute(delete(KeepRequest).where(KeepRequest.job_id == job_id))
    session.expunge_all()
    row = KeepRequest(job_id=job_id, worker_id=attempt.worker_id, attempt=attempt.number, paths=list(paths))
    session.add(row)
    session.flush()
    session.refresh(row)
    announcement_of(session).wake_workers()
    audit.add(session, caller, "job.keep", job_id)
    return _view(session, row)


def find_newest(session: Session, job_id: str, caller: Caller = SERVICE) -> KeepView:
    """Returns the newest request. Raises NotFound, also if there is none, and Forbidden."""
    access.check_own(session, job_id, caller)
    row = session.get(KeepRequest, job_id)
    if row is None:
        raise NotFound(f"nobody has asked to keep files of job {job_id}")
    return _view(session, row)


def list_unanswered(session: Session, worker_id: str, *, limit: int) -> list[KeepOrder]:
    """Returns the requests that the worker is to answer: of each owner of jobs the oldest. At most `limit`."""
    index = func.row_number().over(partition_by=Job.owner, order_by=(KeepRequest.requested_at, KeepRequest.job_id))
    query = select(KeepRequest.job_id, Job.owner, index.label("index")).join(Job, Job.id == KeepRequest.job_id)
    first = query.where(KeepRequest.worker_id == worker_id, KeepRequest.answered_at.is_(None)).subquery()
    rows = select(KeepRequest, first.c.owner).join(first, first.c.job_id == KeepRequest.job_id)
    requests = session.execute(rows.where(first.c.index == 1).order_by(KeepRequest.requested_at).limit(limit))
    return [KeepOrder(row.job_id, owner, row.attempt, tuple(row.paths), row.requested_at) for row, owner in requests]


def is_asked(session: Session, worker_id: str) -> bool:
    """Returns whether the worker is to answer a request."""
    return bool(_IS_ASKED.read(session, {"worker": worker_id}))


def require_job(session: Session, worker_id: str, job_id: str) -> None:
    """Raises StaleClaim unless the worker has an open attempt of the job, or a request to keep its files."""
    attempts = select(Attempt.id).where(Attempt.job_id == job_id, Attempt.ended_at.is_(None))
    asked = select(KeepRequest.attempt).where(KeepRequest.job_id == job_id, KeepRequest.answered_at.is_(None))
    own = attempts.where(Attempt.worker_id == worker_id), asked.where(KeepRequest.worker_id == worker_id)
    if session.scalar(union_all(*own).limit(1)) is None:
        raise StaleClaim(f"worker {worker_id} does nothing for job {job_id}")


def store_files(session: Session, worker_id: str, order: KeepOrder, new: Sequence[NewArtifact], *, copied: int) -> None:
    """Inserts files of an unanswered request, and notes how many bytes were copied for it.

    Raises StaleClaim if the request or its job is gone.
    """
    # In the order in which a deletion and an attempt's own writes lock them.
    session.execute(select(Attempt.id).where(Attempt.job_id == order.job_id).order_by(Attempt.id).with_for_update())
    if jobs.lock(session, order.job_id) is None:
        raise StaleClaim(f"job {order.job_id} was deleted")
    size = sum(item.size for item in new)
    values = {"files": KeepRequest.files + len(new), "size": KeepRequest.size + size, "copied": copied}
    _update(session, worker_id, order, **values)
    if new:
        artifacts.add(session, order.job_id, attempt=order.attempt, new=new)
        announcement_of(session).mark_changed(order.job_id)


def answer(session: Session, worker_id: str, order: KeepOrder, *, refused: str | None) -> None:
    """Ends a request. `refused`: why nothing was stored, or what was not. Raises StaleClaim if it is gone."""
    _update(session, worker_id, order, answered_at=now_us(), refused=refused)


def _update(session: Session, worker_id: str, order: KeepOrder, **values: Any) -> None:
    same = [getattr(KeepRequest, name) == getattr(order, name) for name in ("job_id", "attempt", "requested_at")]
    mine = (KeepRequest.worker_id == worker_id, KeepRequest.answered_at.is_(None))
    changed = update(KeepRequest).where(*same, *mine).values(**values).returning(KeepRequest.job_id)
    if session.execute(changed).first() is None:
        raise StaleClaim(f"nobody asks any more to keep files of job {order.job_id}")


def _folder_of(session: Session, job: Job) -> tuple[Attempt, Worker, bool]:
    """Returns the newest attempt, the worker on whose host its folder is, and whether that was seen of late.

    Raises Conflict.
    """
    if not str(job.spec.get("config", {}).get("code", "")).startswith("bundle:"):
        raise Conflict(f"job {job.id} has no working folder: its code was not uploaded")
    newest = select(Attempt).where(Attempt.job_id == job.id).order_by(Attempt.number.desc()).limit(1)
    attempt = session.scalars(newest).first()
    if attempt is None:
        raise Conflict(f"job {job.id} has no working folder: it has not run yet")
    return attempt, *workers.require(session, attempt.worker_id)


def _view(session: Session, row: KeepRequest) -> KeepView:
    worker, alive = workers.require(session, row.worker_id)
    return KeepView(
        paths=row.paths,
        attempt=row.attempt,
        requested_at=columns.to_time(row.requested_at),
        answered_at=None if row.answered_at is None else columns.to_time(row.answered_at),
        refused=row.refused,
        files=row.files,
        size=row.size,
        copied=row.copied,
        worker=worker.name,
        away=not alive,
    )
