"""Workers as users see them: their rows, the jobs that hold their devices, and how these were used."""

from collections.abc import Mapping, Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from store import pages
from store.cluster import device_history, workers
from store.cluster.facts import HolderFacts, KeptFacts, PoolFacts, WorkerFacts, WorkerHistory
from store.pages import FactPage
from store.tables import Allocation, Attempt, Job, Reservation, Worker
from store.team import access, audit
from store.team.callers import Caller
from torchyard.contract.states import JobState

# Built once, because every answer with workers executes it.
_HOLDERS = (
    select(Allocation.worker_id, Allocation.device)
    .add_columns(Job.id, Job.name, Job.owner, Job.visibility, Job.state, func.coalesce(Job.started_at, Job.created_at))
    .add_columns(Attempt.guest)
    .join(Attempt, Attempt.id == Allocation.attempt_id)
    .join(Job, Job.id == Attempt.job_id)
    .where(Allocation.released_at.is_(None))
)
_KEPT = (
    select(Reservation.worker_id, Reservation.kind, Job.id, Job.name, Job.owner, Job.visibility)
    .join(Job, Job.id == Reservation.job_id)
    .order_by(Reservation.worker_id, Reservation.kind)
)

_IN_POOLS = (
    select(Attempt.worker_id, func.count().label("jobs"), func.count(Attempt.running_at).label("running"))
    .where(Attempt.ended_at.is_(None), Attempt.pool_devices > 0)
    .group_by(Attempt.worker_id)
)


def find_worker(session: Session, worker_id: str) -> WorkerFacts:
    """Returns a worker. Raises NotFound."""
    worker, alive = workers.require(session, worker_id)
    counts = _count_in_pools(session, [worker])
    return _worker_facts(
        worker, alive, _read_holders(session).get(worker_id, {}), _read_kept_places(session).get(worker_id, []), counts
    )


def drain(session: Session, worker_id: str, *, drain: bool, caller: Caller) -> WorkerFacts:
    """Requests a worker to claim no jobs and return those that it runs to the queue, or to work again.

    Raises NotFound.
    """
    workers.set_drain(session, worker_id, drain=drain)
    audit.add(session, caller, "worker.drain" if drain else "worker.undrain", worker_id)
    return find_worker(session, worker_id)


def set_users(session: Session, worker_id: str, users: Sequence[str] | None, *, caller: Caller) -> WorkerFacts:
    """Has a worker take the jobs of these users only; None: of all. Its running jobs go on. Raises NotFound."""
    workers.set_users(session, worker_id, users)
    named = "all" if users is None else ", ".join(sorted(users)) or "nobody"
    audit.add(session, caller, "worker.users", f"{worker_id}: {named[:1000]}")
    return find_worker(session, worker_id)


def list_workers(session: Session, *, limit: int, after: str | None = None) -> FactPage[WorkerFacts]:
    """Returns workers, ordered by id; with `after` (an id), only those behind it."""
    rows = workers.list_all(session, limit=limit + 1, after=after)
    holders, kept = (_read_holders(session), _read_kept_places(session)) if rows else ({}, {})
    counts = _count_in_pools(session, [worker for worker, _ in rows])
    shown = [
        _worker_facts(worker, alive, holders.get(worker.id, {}), kept.get(worker.id, []), counts)
        for worker, alive in rows
    ]
    return pages.first(shown, limit)


def read_history(
    session: Session, worker_id: str, *, caller: Caller, begins: int | None, ends: int | None, most: int
) -> WorkerHistory:
    """Returns how the worker's devices were used, as `store.cluster.device_history.read` does. Raises NotFound."""
    worker, _ = workers.require(session, worker_id)
    history = device_history.read(session, worker_id, begins=begins, ends=ends, most=most)
    named = {use.job_id for uses in history.slots.values() for use in uses.values() if use.job_id is not None}
    return WorkerHistory(worker.id, worker.devices, history, access.find_listed(session, named, caller))


def _worker_facts(
    worker: Worker,
    alive: bool,
    holders: Mapping[str, HolderFacts],
    kept: Sequence[KeptFacts],
    counts: Mapping[str, tuple[int, int]],
) -> WorkerFacts:
    waiting, running = counts.get(worker.id, (0, 0))
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
        kept=kept,
        pool=None if worker.pool is None else PoolFacts(worker.pool, waiting, running),
        remote=worker.remote,
        users=worker.users,
    )


def _count_in_pools(session: Session, listed: Sequence[Worker]) -> dict[str, tuple[int, int]]:
    """Returns how many jobs wait and how many run in those of the workers that are pools, by their ids."""
    if all(worker.pool is None for worker in listed):
        return {}
    return {row.worker_id: (row.jobs - row.running, row.running) for row in session.execute(_IN_POOLS)}


def _read_kept_places(session: Session) -> dict[str, list[KeptFacts]]:
    """Returns the places that are kept for jobs, by the ids of workers."""
    by_worker: dict[str, list[KeptFacts]] = {}
    for worker_id, *kept in session.execute(_KEPT):
        by_worker.setdefault(worker_id, []).append(KeptFacts(*kept))
    return by_worker


def _read_holders(session: Session) -> dict[str, dict[str, HolderFacts]]:
    """Returns the jobs that hold devices, by the ids of workers and the uuids of devices."""
    by_worker: dict[str, dict[str, HolderFacts]] = {}
    for worker_id, device, job_id, name, owner, visibility, state, since, guest in session.execute(_HOLDERS):
        holder = HolderFacts(job_id, name, owner, visibility, JobState(state), since, guest)
        by_worker.setdefault(worker_id, {})[device] = holder
    return by_worker
