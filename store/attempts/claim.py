"""Claims: a job and its devices become a worker's, all or nothing."""

from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from scheduling.snapshot import Placement
from store.announcement import announcement_of
from store.attempts.facts import LEASE, Claim
from store.db.database import in_us, now_us
from store.db.stored_spec import parse_resources
from store.jobs import jobs
from store.output import checkpoints
from store.queue import reservations
from store.queue.line.entries import is_in_line
from store.queue.line_facts import Left
from store.tables import Allocation, Attempt, Job, Worker
from store.team import quotas
from torchyard.contract.cluster.fitting import fits_beside
from torchyard.contract.errors import StaleClaim
from torchyard.contract.states import JobState, Reason


def claim(
    session: Session,
    job_id: str,
    placement: Placement,
    *,
    reservation: int | None = None,
    guest: bool = False,
    holder: str | None = None,
) -> Claim | None:
    """Claims a queued job and its devices for a worker, all or nothing.

    A placement without devices is one in a pool, for `holder`, the daemon that serves it: the devices that the job asks
    for count from now on, and its cluster chooses them later.

    `reservation`: the version of the reservation of the place as the plan saw it; None: it was kept for nobody. If it
    is kept for the job itself, it is kept no more. `guest`: whether the job is to leave when the place is due.

    Returns None if another worker was faster, the job was cancelled, a device is held, the place is kept otherwise, the
    host lacks CPUs or memory, another daemon serves the pool, or the quota of the job's owner forbids it; nothing is
    written then. A job that is not queued any more is then removed from the line.
    """
    try:
        with session.begin_nested():
            return _claim(session, job_id, placement, reservation=reservation, guest=guest, holder=holder)
    except (IntegrityError, StaleClaim):
        job = jobs.lock(session, job_id)
        if job is None or job.state != JobState.QUEUED:
            announcement_of(session).dequeue(job_id, Left(None if job is None else job.lined_at))
        return None


def _claim(
    session: Session,
    job_id: str,
    placement: Placement,
    *,
    reservation: int | None,
    guest: bool,
    holder: str | None,
) -> Claim:
    worker = _lock_worker(session, placement, reservation=reservation, holder=holder)
    job = jobs.lock(session, job_id)
    if job is None or not is_in_line(job):
        raise StaleClaim(f"job {job_id} is not queued, or waits for other jobs")
    pool_devices = _pool_devices(worker, job)
    if not pool_devices:
        _check_host(session, worker, job)
    refused = quotas.claim_refusal(session, job.owner, devices=pool_devices or len(placement.devices))
    if refused is not None:
        raise StaleClaim(f"job {job_id} {refused}")
    number = job.attempt + 1
    held = {"guest": guest, "pool_devices": pool_devices, "holder": holder}
    attempt_id = _insert_attempt(session, job, number=number, worker_id=worker.id, **held)
    if placement.devices:
        _allocate(session, attempt_id, placement)
    moved = jobs.transition(
        session,
        job_id,
        JobState.STARTING,
        reason=Reason("starting", f"attempt {number} starts {'in pool' if pool_devices else 'on'} {worker.name}"),
        locked=job,
        attempt=number,
        devices=[
            {"worker": worker.id, "index": device.index, "uuid": device.uuid, "name": device.name}
            for device in placement.devices
        ],
        error=None,
        not_before=None,
        started_at=job.started_at if job.started_at is not None else now_us(),
    )
    if moved is None:
        raise StaleClaim(f"job {job_id} is not queued")
    return Claim(attempt_id, job_id, number, worker.id, holder)


def _lock_worker(session: Session, placement: Placement, *, reservation: int | None, holder: str | None) -> Worker:
    """Returns the worker, locked. Raises StaleClaim if it does not offer the place as it was planned."""
    lock_worker = select(Worker).where(Worker.id == placement.worker_id).with_for_update(key_share=True)
    worker = session.scalars(lock_worker.execution_options(populate_existing=True)).one()
    if worker.drain_requested_at is not None:
        raise StaleClaim(f"worker {worker.name} is draining")
    if worker.holder != holder or (worker.pool is None) != bool(placement.devices):
        raise StaleClaim(f"another daemon serves pool {worker.name}")
    for kind in {device.kind for device in placement.devices}:
        if reservations.version_of(session, worker.id, kind) != reservation:
            raise StaleClaim(f"the reservations of worker {worker.name} have changed")
    return worker


def _pool_devices(worker: Worker, job: Job) -> int:
    """Returns how many devices of the pool the job gets; 0 on a host. Raises StaleClaim if the job goes elsewhere."""
    asked = parse_resources(job.spec["resources"])
    if asked.pool != (None if worker.pool is None else worker.name) or asked.worker not in {None, worker.name}:
        raise StaleClaim(f"job {job.id} does not start on {worker.name}")
    if worker.users is not None and job.owner not in worker.users:
        raise StaleClaim(f"worker {worker.name} does not run jobs of {job.owner}")
    return 0 if asked.pool is None else asked.total_devices


def _check_host(session: Session, worker: Worker, job: Job) -> None:
    """Raises StaleClaim if the host has not the CPUs and the memory that the job requests, beside its other jobs."""
    wanted, offered = job.spec["resources"], worker.starts or {}
    asked = [name for name in ("cpus", "memory_gb") if wanted.get(name) is not None]
    if not asked:
        return
    running = select(Job.spec["resources"]).join(Attempt, Attempt.job_id == Job.id)
    held = session.scalars(running.where(Attempt.worker_id == worker.id, Attempt.ended_at.is_(None))).all()
    for name in asked:
        if not fits_beside(wanted[name], [resources.get(name) for resources in held], offered.get(name)):
            raise StaleClaim(f"worker {worker.name} has too little {name} beside its other jobs")


def _insert_attempt(session: Session, job: Job, *, number: int, worker_id: str, **held: Any) -> int:
    """Inserts an open attempt with a fresh lease, and returns its id."""
    saved = checkpoints.find_resumed(session, job.id)
    step = 0 if saved is None else saved.step
    # A script that finds its own files tells by its first step where it goes on.
    is_known = job.trainer != "script" if saved is None else saved.source is None
    new = insert(Attempt).values(
        job_id=job.id,
        number=number,
        worker_id=worker_id,
        lease_until=now_us() + in_us(LEASE),
        start_step=step,
        hides_after=step if is_known else None,
        **held,
    )
    return session.execute(new.returning(Attempt.id)).scalar_one()


def _allocate(session: Session, attempt_id: int, placement: Placement) -> None:
    shared = {"attempt_id": attempt_id, "node_rank": placement.node_rank, "worker_id": placement.worker_id}
    # Always in one order: two claims that wait for each other's devices would deadlock.
    devices = sorted(placement.devices, key=lambda device: device.uuid)
    session.execute(insert(Allocation), [{**shared, "device": device.uuid, "kind": device.kind} for device in devices])
