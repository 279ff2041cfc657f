"""Workers: their registration, heartbeats and drains."""

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

from sqlalchemy import ColumnElement, bindparam, or_, select, text, true, update
from sqlalchemy.orm import Session

from store.announcement import WORKERS, announcement_of
from store.attempts import lease as leases
from store.attempts.facts import LEASE
from store.db.database import document, now_us
from store.db.prepared import Prepared
from store.queue import reservations
from store.tables import Reservation, Worker
from torchyard.contract.cluster.devices import DeviceReport
from torchyard.contract.errors import Conflict, NotFound

_LEASE_US = int(LEASE.total_seconds() * 1_000_000)


def is_alive() -> ColumnElement[bool]:
    """Returns the condition that the worker was seen within one lease."""
    return Worker.seen_at > now_us() - _LEASE_US


IS_LISTED = Worker.removed_at.is_(None)
"""The condition that no administrator has removed the worker."""
_ALL = select(Worker, is_alive().label("alive")).where(IS_LISTED).order_by(Worker.id)

# Built once, because each heartbeat executes them.
_OWN = Worker.id == bindparam("worker")
_SEEN = Prepared(update(Worker).where(_OWN).values(seen_at=now_us()))
_REPORTED = Prepared(
    update(Worker)
    .where(_OWN)
    .values(seen_at=now_us(), devices=bindparam("new_devices"), starts=bindparam("new_starts"))
)
_DRAINS = Prepared(select(Worker.drain_requested_at).where(_OWN))
_CPU_SHARERS = Prepared(
    select(Worker.id)
    .where(Worker.shares_cpus_of == select(Worker.shares_cpus_of).where(_OWN).scalar_subquery())
    .where(is_alive())
    .order_by(Worker.id)
)


def register(
    session: Session,
    worker_id: str,
    *,
    name: str,
    devices: list[Any],
    shares_cpus_of: str | None = None,
    remote: bool = False,
) -> str:
    """Registers a daemon that has just started, and returns its name: `name`, or `name-2`, … if others have it.

    The id belongs to its data directory and survives restarts. `shares_cpus_of`: the boot of its host, if it offers the
    host's CPUs to as many jobs as there are. `remote`: whether it reaches the service over HTTPS alone.
    """
    announcement_of(session).mark_changed(WORKERS)
    _lock_all(session)
    worker = session.get(Worker, worker_id)
    if worker is None:
        worker = Worker(id=worker_id, started_at=now_us(), seen_at=now_us())
    worker.name = _free_name(session, name, worker_id=worker_id)
    worker.devices, worker.shares_cpus_of, worker.remote = devices, shares_cpus_of, remote
    worker.removed_at = None
    session.add(worker)
    session.flush()
    session.execute(update(Worker).where(Worker.id == worker_id).values(started_at=now_us(), seen_at=now_us()))
    return worker.name


def register_pool(session: Session, worker_id: str, *, name: str, holder: str, pool: dict[str, Any]) -> None:
    """Registers a daemon that serves a pool from now on: it alone may write for the pool's attempts.

    `holder` tells daemons of the pool apart. `pool`: a `torchyard.contract.cluster.devices.PoolReport`. Raises Conflict
    while another daemon that was seen within one lease serves it, or a pool of another folder has its name.
    """
    _lock_all(session)
    row = session.execute(_ALL.where(Worker.id == worker_id)).first()
    if row is not None and row.alive and row.Worker.holder not in {None, holder}:
        raise Conflict(f"pool {name} is served by {row.Worker.holder}")
    named = select(Worker.id).where(Worker.name == name, Worker.pool.is_not(None), is_alive())
    if (other := session.scalar(named.where(Worker.id != worker_id).limit(1))) is not None:
        raise Conflict(f"worker {other} serves a pool of the name {name} from another data directory")
    worker = row.Worker if row is not None else Worker(id=worker_id, devices=[], started_at=now_us(), seen_at=now_us())
    worker.name, worker.holder, worker.pool, worker.removed_at = name, holder, pool, None
    session.add(worker)
    session.flush()
    session.execute(update(Worker).where(Worker.id == worker_id).values(started_at=now_us(), seen_at=now_us()))
    leases.take_over(session, worker_id, holder)
    announcement_of(session).mark_changed(WORKERS)


def release_pool(session: Session, worker_id: str, *, holder: str) -> None:
    """Lets another daemon serve the pool at once."""
    session.execute(update(Worker).where(Worker.id == worker_id, Worker.holder == holder).values(holder=None))


def pool_heartbeat(
    session: Session, worker_id: str, *, holder: str, pool: dict[str, Any], starts: dict[str, Any]
) -> bool:
    """Stores that the daemon of a pool is alive, the state of the pool, and how it starts jobs.

    Returns False, without a write, if the daemon does not serve the pool now.
    """
    values = {"seen_at": now_us(), "pool": pool, "starts": starts}
    own = update(Worker).where(Worker.id == worker_id, Worker.holder == holder).values(**values)
    if session.execute(own.returning(Worker.id)).first() is None:
        return False
    announcement_of(session).mark_changed(WORKERS)
    return True


def cpu_sharers(session: Session, worker_id: str) -> list[str]:
    """Returns the ids of the live workers that share the CPUs of this worker's host, with its own, in their order."""
    return [worker for (worker,) in _CPU_SHARERS.read(session, {"worker": worker_id})]


def heartbeat(session: Session, worker_id: str, *, devices: list[Any], starts: dict[str, Any] | None = None) -> None:
    """Stores that the daemon is alive, the state of its devices, and how it starts jobs."""
    announcement_of(session).mark_changed(WORKERS)
    values = {"new_devices": document(devices), "new_starts": None if starts is None else document(starts)}
    _REPORTED.write(session, [{"worker": worker_id, **values}])


def mark_seen(session: Session, worker_id: str) -> None:
    """Stores that the daemon is alive."""
    _SEEN.write(session, [{"worker": worker_id}])


def check_devices(session: Session, worker_id: str, devices: Iterable[DeviceReport]) -> None:
    """Raises Conflict if another live worker has one of the GPUs. CPU slots have the same names on all hosts."""
    gpus = {device.uuid for device in devices if device.kind == "cuda"}
    if not gpus or not (gpus := gpus - device_uuids(session, worker_id)):
        return
    others = session.execute(select(Worker.name, Worker.devices).where(Worker.id != worker_id, is_alive()))
    for name, held in others:
        if taken := gpus & {device["uuid"] for device in held}:
            raise Conflict(f"GPU {min(taken)} belongs to worker {name}")


def name_of(session: Session, worker_id: str) -> str | None:
    """Returns the name that the worker has; None if there is no such worker."""
    return session.scalar(select(Worker.name).where(Worker.id == worker_id))


def device_uuids(session: Session, worker_id: str) -> set[str]:
    """Returns the devices that the worker has told of last."""
    devices = session.scalar(select(Worker.devices).where(Worker.id == worker_id))
    return {device["uuid"] for device in devices or ()}


def is_draining(session: Session, worker_id: str) -> bool:
    """Returns whether the worker is requested to claim no jobs and to return those that it runs to the queue."""
    return any(requested is not None for (requested,) in _DRAINS.read(session, {"worker": worker_id}))


def set_drain(session: Session, worker_id: str, *, drain: bool) -> tuple[Worker, bool]:
    """Requests the worker to claim no jobs and return those that it runs, or to work again.

    Returns the worker, and whether it is alive. Raises NotFound.
    """
    session.execute(
        update(Worker)
        .where(Worker.id == worker_id, Worker.drain_requested_at.is_(None) if drain else true())
        .values(drain_requested_at=now_us() if drain else None)
    )
    if drain:
        reservations.free_places_on(session, [worker_id])
    announcement_of(session).mark_changed(WORKERS)
    announcement_of(session).wake_workers()
    return require(session, worker_id)


def set_users(session: Session, worker_id: str, users: Sequence[str] | None) -> None:
    """Has the worker take the jobs of these users only; None: of all. Raises NotFound."""
    worker, _ = require(session, worker_id)
    worker.users = None if users is None else sorted({*users})
    session.flush()
    reservations.free_places_on(session, [worker_id])
    announcement_of(session).mark_changed(WORKERS)
    announcement_of(session).wake_workers()


def idle_keepers(session: Session) -> list[str]:
    """Returns the workers with kept places that take no jobs: they are lost, or drain."""
    reserved = select(Reservation.worker_id).where(Reservation.job_id.is_not(None))
    away = or_(~is_alive(), Worker.drain_requested_at.is_not(None))
    return [*session.scalars(select(Worker.id).where(Worker.id.in_(reserved), away).order_by(Worker.id))]


def list_all(session: Session, *, limit: int = 1000, after: str | None = None) -> Sequence[tuple[Worker, bool]]:
    """Returns all workers, each with whether it was seen within one lease, ordered by id."""
    query = _ALL.limit(limit)
    if after is not None:
        query = query.where(Worker.id > after)
    return [(row.Worker, bool(row.alive)) for row in session.execute(query)]


def require(session: Session, worker_id: str) -> tuple[Worker, bool]:
    """Returns one worker, and whether it was seen within one lease. Raises NotFound."""
    row = session.execute(_ALL.where(Worker.id == worker_id)).first()
    if row is None:
        raise NotFound(f"there is no worker {worker_id}")
    return row.Worker, bool(row.alive)


def _lock_all(session: Session) -> None:
    if session.get_bind().dialect.name == "postgresql":  # SQLite has one writer at a time
        session.execute(text("LOCK TABLE workers IN SHARE ROW EXCLUSIVE MODE"))


def _free_name(session: Session, name: str, *, worker_id: str) -> str:
    taken = {*session.scalars(select(Worker.name).where(Worker.id != worker_id, is_alive()))}
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(candidate for candidate in names if candidate not in taken)
