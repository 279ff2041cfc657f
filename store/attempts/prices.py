"""What running jobs lose if they stop now without saving."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import bindparam, func, or_, select
from sqlalchemy.orm import Session

from scheduling.price import lost_steps, lost_us
from store.attempts.facts import StopPrice
from store.cluster import workers
from store.cluster.occupancy import SAVED_AT, SINCE
from store.db.database import now_us
from store.db.prepared import Prepared, among, texts
from store.output.checkpoints import sort_resumed_first
from store.tables import Allocation, Attempt, Base, Checkpoint, Job, Worker
from torchyard.contract.bundles.names import BUNDLE_URL
from torchyard.contract.queue.price import Kind, Stake, saving

_JOB_ID = Base.metadata.tables["attempts"].c.job_id
_HELD = select(Allocation).where(Allocation.attempt_id == Attempt.id, Allocation.released_at.is_(None))
_SAVED_STEP = (
    sort_resumed_first(select(Checkpoint.step).where(Checkpoint.job_id == Job.id, Checkpoint.removed_at.is_(None)))
    .limit(1)
    .correlate(Job)
    .scalar_subquery()
)
_RUNNING = (
    select(
        Job.id,
        Job.name,
        Job.owner,
        Job.visibility,
        Job.trainer,
        Job.spec["mode"].label("mode"),
        Job.spec["config"]["code"].label("code"),
        Job.progress,
        Attempt.running_at,
        Attempt.stepped_at,
        Attempt.pool_devices,
        Worker.pool,
        _HELD.with_only_columns(func.count()).correlate(Attempt).scalar_subquery().label("held"),
        _HELD.with_only_columns(func.max(Allocation.kind)).correlate(Attempt).scalar_subquery().label("kind"),
        SINCE.label("since"),
        SAVED_AT.label("saved_at"),
        _SAVED_STEP.label("saved_step"),
        now_us().label("now"),
    )
    .join(Attempt, Attempt.job_id == Job.id)
    .join(Worker, Worker.id == Attempt.worker_id)
    # What waits in the queue of a pool's cluster holds nothing.
    .where(Attempt.ended_at.is_(None), or_(Attempt.pool_devices == 0, Attempt.running_at.is_not(None)))
)
# Built once: building a statement costs more than executing it.
_OF_JOBS = Prepared(_RUNNING.where(among(_JOB_ID, "ids")))
_ON_WORKER = Prepared(_RUNNING.where(Attempt.worker_id == bindparam("worker")))


def price_jobs(session: Session, job_ids: Collection[str], *, now: bool = False) -> Sequence[StopPrice]:
    """Returns the prices of those of the jobs that run, the highest first. `now`: they are killed."""
    rows = _OF_JOBS.rows(session, {"ids": texts(job_ids)}) if job_ids else []
    return _price_rows(rows, now=now)


def price_drain(session: Session, worker_id: str) -> Sequence[StopPrice]:
    """Returns the prices of all jobs that run on the worker, the highest first. Raises NotFound."""
    workers.require(session, worker_id)
    return _price_rows(_ON_WORKER.rows(session, {"worker": worker_id}), now=False)


def _price_rows(rows: Sequence[Any], *, now: bool) -> Sequence[StopPrice]:
    return sorted((_price_row(row, now=now) for row in rows), key=lambda one: (-one.stake.device_us, one.job_id))


def _price_row(row: Any, *, now: bool) -> StopPrice:
    devices = row.pool_devices or row.held
    stake = Stake(
        kind=_kind_of(row),
        device_us=lost_us(now=row.now, since=row.since, saved_at=row.saved_at, devices=devices),
        steps=_lost_steps(row),
        resumes_at=row.saved_step,
        is_training=row.running_at is not None,
        has_folder=row.trainer == "script" and str(row.code).startswith(BUNDLE_URL),
    )
    by = saving(row.trainer, row.mode, now=now)
    return StopPrice(row.id, row.name, row.owner, row.visibility, devices, stake, by)


def _kind_of(row: Any) -> Kind:
    reported = row.kind if row.pool is None else row.pool.get("kind")
    return "cuda" if reported == "cuda" else "cpu"


def _lost_steps(row: Any) -> int | None:
    if row.stepped_at is None:
        return 0  # what the job has reported is of an earlier attempt
    step = row.progress.get("step") if isinstance(row.progress, dict) else None
    return lost_steps(step, saved=row.saved_step)
