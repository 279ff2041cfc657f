"""What is told of workers: their rows, and the jobs that hold their devices."""

from collections.abc import Mapping, Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from store.db.tables import Allocation, Attempt, Job, Worker
from store.facts.workers import HolderFacts, WorkerFacts
from store.rows import workers
from torchyard.contract.job import JobState

# Built once, because every answer with workers executes it.
_HOLDERS = (
    select(Allocation.worker_id, Allocation.device)
    .add_columns(Job.id, Job.name, Job.owner, Job.visibility, Job.state, func.coalesce(Job.started_at, Job.created_at))
    .join(Attempt, Attempt.id == Allocation.attempt_id)
    .join(Job, Job.id == Attempt.job_id)
    .where(Allocation.released_at.is_(None))
)


def get(session: Session, worker_id: str) -> WorkerFacts:
    """Returns a worker. Raises NotFound."""
    worker, alive = workers.get(session, worker_id)
    return _facts(worker, alive, _holders(session).get(worker_id, {}))


def listed(session: Session, *, limit: int, after: str | None = None) -> Sequence[WorkerFacts]:
    """Returns workers, as `store.rows.workers.list_all` does."""
    found = workers.list_all(session, limit=limit, after=after)
    holders = _holders(session) if found else {}
    return [_facts(worker, alive, holders.get(worker.id, {})) for worker, alive in found]


def _facts(worker: Worker, alive: bool, holders: Mapping[str, HolderFacts]) -> WorkerFacts:
    return WorkerFacts(
        id=worker.id,
        name=worker.name,
        alive=alive,
        draining=worker.drain_requested_at is not None,
        started_at=worker.started_at,
        seen_at=worker.seen_at,
        devices=worker.devices,
        starts=worker.starts,
        holders=holders,
    )


def _holders(session: Session) -> dict[str, dict[str, HolderFacts]]:
    """Returns the jobs that hold devices, by the ids of workers and the uuids of devices."""
    found: dict[str, dict[str, HolderFacts]] = {}
    for worker_id, device, job_id, name, owner, visibility, state, since in session.execute(_HOLDERS):
        holder = HolderFacts(job_id, name, owner, visibility, JobState(state), since)
        found.setdefault(worker_id, {})[device] = holder
    return found
