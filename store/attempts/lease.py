"""Leases of attempts: who may write for which, and for how long nobody takes them for lost."""

from collections.abc import Iterable

from sqlalchemy import ColumnElement, and_, exists, or_, select, update
from sqlalchemy.orm import Session, aliased

from store.attempts.facts import LEASE, Claim
from store.db.database import in_us, now_us
from store.tables import Attempt, Job, Worker
from torchyard.contract.errors import StaleClaim


def renew(session: Session, worker_id: str, attempt_ids: Iterable[int], *, holder: str | None = None) -> set[int]:
    """Extends the leases to 30 s from now. Returns the ids of the attempts that the worker still owns.

    `holder`: the daemon of a pool, which owns none once another one serves the pool.
    """
    rows = session.execute(
        update(Attempt)
        .where(Attempt.id.in_(list(attempt_ids)), _owned_by(worker_id, holder))
        .values(lease_until=now_us() + in_us(LEASE))
        .returning(Attempt.id)
    )
    return set(rows.scalars())


def list_open(session: Session, worker_id: str, *, holder: str | None = None) -> list[Claim]:
    """Returns the worker's open attempts, which a restarted daemon adopts. `holder`: as in `renew`."""
    query = select(Attempt).where(_owned_by(worker_id, holder)).order_by(Attempt.id)
    return [Claim(row.id, row.job_id, row.number, row.worker_id, row.holder) for row in session.scalars(query)]


def require_job(session: Session, worker_id: str, job_id: str) -> None:
    """Raises StaleClaim unless the worker has an open attempt of the job, or of one that retries it."""
    own = select(Attempt.id).join(Job, Job.id == Attempt.job_id).where(_owned_by(worker_id, None))
    if session.scalar(own.where(or_(Job.id == job_id, Job.retry_of == job_id)).limit(1)) is None:
        raise StaleClaim(f"worker {worker_id} has no open attempt of job {job_id}")


def take_over(session: Session, worker_id: str, holder: str) -> None:
    """Has the daemon alone write for the open attempts of its pool from now on."""
    session.execute(update(Attempt).where(_owned_by(worker_id, None)).values(holder=holder))


def adopt(session: Session, worker_id: str) -> list[Claim]:
    """Returns the worker's open attempts, with renewed leases. `worker_id` has just registered again."""
    adopted = list_open(session, worker_id)
    renew(session, worker_id, [claim.attempt_id for claim in adopted])
    return adopted


def list_expired(session: Session) -> list[Claim]:
    """Returns the open attempts that are lost, but for those that `may_return`."""
    query = select(Attempt).where(Attempt.ended_at.is_(None), is_lost(), ~may_return())
    return [Claim(row.id, row.job_id, row.number, row.worker_id) for row in session.scalars(query)]


def is_lost() -> ColumnElement[bool]:
    """Returns the condition that the attempt's lease has expired on a host: in a pool it goes on without its daemon."""
    return and_(Attempt.lease_until < now_us(), Attempt.pool_devices == 0)


def may_return() -> ColumnElement[bool]:
    """Returns the condition that the attempt is lost for now: its remote worker does not answer.

    It goes on there if the worker comes back before another one takes the job. Nobody waits for a job that is asked to
    stop.
    """
    worker, job = aliased(Worker), aliased(Job)
    away = exists().where(worker.id == Attempt.worker_id, worker.remote, worker.seen_at <= now_us() - in_us(LEASE))
    stops = (job.cancel_requested_at, job.pause_requested_at, job.preempt_requested_at, job.idle_requested_at)
    goes_on = exists().where(job.id == Attempt.job_id, *(stop.is_(None) for stop in stops))
    return and_(is_lost(), away, goes_on)


def _owned_by(worker_id: str, holder: str | None) -> ColumnElement[bool]:
    own = and_(Attempt.worker_id == worker_id, Attempt.ended_at.is_(None))
    return own if holder is None else and_(own, Attempt.holder == holder)
