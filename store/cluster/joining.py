"""Remote workers: how a machine becomes one, and how it is removed."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from store.announcement import WORKERS, announcement_of
from store.attempts import end
from store.attempts.facts import LEASE
from store.cluster import worker_tokens, workers
from store.db.database import in_us, now_us
from store.ids import new_id
from store.queue import reservations
from store.tables import Worker
from store.team import audit
from store.team.callers import Caller
from torchyard.contract.errors import Conflict


@dataclass(frozen=True)
class NewWorker:
    """A remote worker that has just joined."""

    id: str
    name: str
    token: str


def join(session: Session, name: str, *, users: Sequence[str] | None = None, caller: Caller) -> NewWorker:
    """Makes a remote worker, which is lost until its daemon registers. One of the same name that is lost is removed:
    the machine has joined again. `users`: those whose jobs it takes; None: all.
    """
    earlier = select(Worker.id).where(Worker.name == name, Worker.remote, ~workers.is_alive(), workers.IS_LISTED)
    for worker_id in session.scalars(earlier).all():
        remove(session, worker_id, caller=caller)
    worker_id = new_id("wrk")
    lost = now_us() - in_us(LEASE) - 1
    row = Worker(id=worker_id, name=name, devices=[], remote=True, started_at=now_us(), seen_at=lost)
    row.users = None if users is None else [*users]
    session.add(row)
    session.flush()
    token = worker_tokens.issue(session, worker_id)
    announcement_of(session).mark_changed(WORKERS)
    audit.add(session, caller, "worker.join", worker_id)
    return NewWorker(worker_id, name, token)


def join_again(session: Session, worker_id: str) -> NewWorker:
    """Returns the worker that has joined, whose machine has lost the answer, with a new token. Raises NotFound."""
    worker, _ = workers.require(session, worker_id)
    return NewWorker(worker.id, worker.name, worker_tokens.issue(session, worker_id))


def remove(session: Session, worker_id: str, *, caller: Caller) -> None:
    """Ends a remote worker: its token is dead at once, and its jobs return to the queue. One that is lost and not
    remote is only taken out of the lists.

    Raises NotFound, and Conflict for a worker of the service's own hosts that is alive.
    """
    worker, alive = workers.require(session, worker_id)
    if alive and not worker.remote:
        raise Conflict(
            f"{worker.name} is a worker of the service itself: stop its program, or drain it with `torchyard drain"
            f" {worker.name}`"
        )
    worker_tokens.revoke(session, worker_id)
    session.execute(update(Worker).where(Worker.id == worker_id).values(removed_at=now_us(), seen_at=0))
    end.end_removed(session, worker_id, name=worker.name)
    reservations.free_places_on(session, [worker_id])
    announcement_of(session).mark_changed(WORKERS)
    announcement_of(session).wake_workers()
    audit.add(session, caller, "worker.remove", worker_id)
