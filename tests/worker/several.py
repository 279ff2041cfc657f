"""Several workers on one database, what happens to them, and what must hold at any time."""

from collections.abc import Sequence

from sqlalchemy import select, update

from scheduling.snapshot import Reservation, Running
from store.attempts.facts import Claim
from store.cluster import occupancy as cluster
from store.db.stored_spec import parse_resources
from store.queue import placement, reservations
from store.tables import Attempt, Job, Worker
from tests.store.fixture import StoreFixture, store_on
from tests.store.test_usage import now
from torchyard.contract.states import JobState

SLOTS = 2
MINUTE = 60_000_000
_OPEN = select(Attempt).where(Attempt.ended_at.is_(None)).order_by(Attempt.id)


class Several:
    """What all workers of a store did, by its rows. Each has `SLOTS` slots."""

    def __init__(self, store: StoreFixture, workers: Sequence[str]) -> None:
        self._store = store
        self.workers = workers
        self.lost: set[str] = set()

    @property
    def waiting(self) -> list[Job]:
        """Returns the queued jobs, the oldest first."""
        query = select(Job).where(Job.state == JobState.QUEUED).order_by(Job.id)
        return [*self._store.read(lambda session: session.scalars(query).all())]

    @property
    def holders(self) -> list[str]:
        """Returns the jobs for which places are kept."""
        return [kept.job_id for kept in self._store.read(reservations.kept_places)]

    def open_claims(self, worker: str | None = None) -> list[Claim]:
        """Returns the attempts that run, with `worker` those on it."""
        rows = self._store.read(lambda session: session.scalars(_OPEN).all())
        return [Claim(row.id, row.job_id, row.number, row.worker_id) for row in rows if worker in {None, row.worker_id}]

    def lose(self, worker: str) -> None:
        """Lets the worker be silent for so long that the others rescue its jobs, as they do in a sweep."""
        self.lost.add(worker)
        old = update(Worker).where(Worker.id == worker).values(seen_at=0)
        self._store.write(lambda session: session.execute(old))
        for claim in self.open_claims(worker):
            self._store.expire(claim)
            assert self._store.rescue(claim)
        for job in self.waiting:
            if job.not_before is not None:
                self._store.hold_back(job.id, seconds=-1)
        self.sweep()

    def sweep(self) -> None:
        """Does what each worker does at intervals: no place stays kept on a lost worker."""
        placement.free_idle_places(store_on(self._store.database))

    def check(self) -> None:
        """Checks what holds at any time, whoever knew what when it acted."""
        kept, at = self._store.read(reservations.kept_places), now(self._store)
        running = self._store.read(cluster.running)
        assert len({job.job_id for job in running}) == len(running), "no job runs twice"
        for worker in self.workers:
            self._check_devices(worker, running)
        for one in kept:
            assert self._store.job(one.job_id).state == JobState.QUEUED, "each kept place has a holder that waits"
            self._check_bound(one, running, at)

    def check_kept(self) -> None:
        """Checks what holds when the workers that live have swept: nothing waits for a dead one."""
        kept = self._store.read(reservations.kept_places)
        assert not {one.worker_id for one in kept} & self.lost

    def check_settled(self, worker: str) -> None:
        """Checks that a place is kept, or others stop, if any job waits after the worker has found nothing to do."""
        found = self._store.read(lambda session: placement.read_plan(session, {worker: []}))
        assert found is None or found[0].reservations or found[0].displacements

    def _check_devices(self, worker: str, running: Sequence[Running]) -> None:
        held = [device for (held_on, device) in self._store.held() if held_on == worker]
        wanted = sum(job.resources.total_devices for job in running if job.worker_id == worker)
        assert len(held) == wanted <= SLOTS, (held, wanted)

    def _check_bound(self, kept: Reservation, running: Sequence[Running], at: int) -> None:
        """Checks that the holder can start by its bound, or a tenth later: the times of a row may be as wrong.

        What may be stopped is left out: a bound counts on the stops of its plan, which another worker requests.
        """
        by = kept.bound + max(MINUTE, (kept.bound - at) // 9) + MINUTE
        there = [job for job in running if job.worker_id == kept.worker_id]
        staying = [job for job in there if not job.preemptible]
        in_the_way = [job for job in staying if job.since + job.limit_us - job.ran_us > by]
        wanted = parse_resources(self._store.job(kept.job_id).spec["resources"]).total_devices
        assert sum(job.resources.total_devices for job in in_the_way) + wanted <= SLOTS, (kept, in_the_way)
