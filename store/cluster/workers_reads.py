"""What is told of workers. All of them raise Unavailable."""

from store import pages
from store.cluster import device_history, workers
from store.cluster import facts_rows as worker_facts
from store.cluster.workers_facts import WorkerFacts, WorkerHistory
from store.db.database import Snapshots
from store.pages import FactPage
from store.team import access
from store.team.callers import Caller


def listed(store: Snapshots, *, limit: int, after: str | None = None) -> FactPage[WorkerFacts]:
    """Returns workers, ordered by id; with `after` (an id), only those behind it."""
    with store.read() as session:
        return pages.first(worker_facts.listed(session, limit=limit + 1, after=after), limit)


def get(store: Snapshots, worker_id: str) -> WorkerFacts:
    """Returns a worker. Raises NotFound."""
    with store.read() as session:
        return worker_facts.get(session, worker_id)


def is_draining(store: Snapshots, worker_id: str) -> bool:
    """Returns whether the worker is to claim no jobs, and to return those that it runs to the queue."""
    with store.read() as session:
        return workers.is_draining(session, worker_id)


def history(
    store: Snapshots, worker_id: str, *, caller: Caller, begins: int | None, ends: int | None, most: int
) -> WorkerHistory:
    """Returns how the worker's devices were used, as `store.cluster.device_history.read` does. Raises NotFound."""
    with store.read() as session:
        worker, _ = workers.get(session, worker_id)
        found = device_history.read(session, worker_id, begins=begins, ends=ends, most=most)
        named = {use.job_id for uses in found.slots.values() for use in uses.values() if use.job_id is not None}
        listed_jobs = access.listed_among(session, named, caller)
    return WorkerHistory(worker.id, worker.devices, found, listed_jobs)
