"""Workers: their registration, heartbeats and drains."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select, true, update
from sqlalchemy.orm import Session

from store.announcement import WORKERS, announcement_of
from store.db.database import now_us
from store.db.tables import Worker
from store.rows.attempts import LEASE
from torchyard.contract.errors import NotFound

_LEASE_US = int(LEASE.total_seconds() * 1_000_000)

# Built once, because each pass over the queue executes it.
_ALL = select(Worker, (Worker.seen_at > now_us() - _LEASE_US).label("alive")).order_by(Worker.id)


def register(session: Session, worker_id: str, *, name: str, devices: list[Any]) -> None:
    """Registers a daemon that has just started. The id belongs to its data directory and survives restarts."""
    announcement_of(session).mark_changed(WORKERS)
    worker = session.get(Worker, worker_id)
    if worker is None:
        session.add(Worker(id=worker_id, name=name, devices=devices, started_at=now_us(), seen_at=now_us()))
        return
    worker.name, worker.devices = name, devices
    session.flush()
    session.execute(update(Worker).where(Worker.id == worker_id).values(started_at=now_us(), seen_at=now_us()))


def heartbeat(session: Session, worker_id: str, *, devices: list[Any], starts: dict[str, Any] | None = None) -> None:
    """Stores that the daemon is alive, the state of its devices, and how it starts jobs."""
    announcement_of(session).mark_changed(WORKERS)
    values = {"seen_at": now_us(), "devices": devices, "starts": starts}
    session.execute(update(Worker).where(Worker.id == worker_id).values(**values))


def is_draining(session: Session, worker_id: str) -> bool:
    """Returns whether the worker is requested to claim no jobs and to return those that it runs to the queue."""
    return session.scalar(select(Worker.drain_requested_at).where(Worker.id == worker_id)) is not None


def set_drain(session: Session, worker_id: str, *, drain: bool) -> tuple[Worker, bool]:
    """Requests the worker to claim no jobs and return those that it runs, or to work again. Returns what `get` does."""
    session.execute(
        update(Worker)
        .where(Worker.id == worker_id, Worker.drain_requested_at.is_(None) if drain else true())
        .values(drain_requested_at=now_us() if drain else None)
    )
    announcement_of(session).mark_changed(WORKERS)
    announcement_of(session).wake_workers()
    return get(session, worker_id)


def list_all(session: Session, *, limit: int = 1000, after: str | None = None) -> Sequence[tuple[Worker, bool]]:
    """Returns all workers, each with whether it was seen within one lease, ordered by id."""
    query = _ALL.limit(limit)
    if after is not None:
        query = query.where(Worker.id > after)
    return [(row.Worker, bool(row.alive)) for row in session.execute(query)]


def get(session: Session, worker_id: str) -> tuple[Worker, bool]:
    """Returns one worker, as `list_all` does. Raises NotFound."""
    row = session.execute(_ALL.where(Worker.id == worker_id)).first()
    if row is None:
        raise NotFound(f"there is no worker {worker_id}")
    return row.Worker, bool(row.alive)
