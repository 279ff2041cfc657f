"""Carries out a plan for workers that ask: keeps places, claims jobs, asks others to stop, and records why jobs wait.

Each step is a transaction, which refuses what has changed since the snapshot.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
import logging

from scheduling.plan import plan
from scheduling.snapshot import Snapshot
from scheduling.steps import Plan, Start, Stop
from store.attempts import claim as claims
from store.attempts import end
from store.attempts.facts import Claim
from store.cluster import workers
from store.jobs.facts import WAITING
from store.queue import away, placement, planning, reservations, waiting
from store.store import Store
from torchyard.contract.cluster.devices import DeviceReport
from torchyard.contract.errors import StaleClaim
from torchyard.contract.states import Reason
from torchyard.contract.wire.units import LONGEST_STOP_GRACE

logger = logging.getLogger(__name__)

_MOST_READS = 3
"""In one pass, if other workers keep places meanwhile. The next pass goes on."""


class Placer:
    """Places waiting jobs on the workers that ask for some."""

    def __init__(
        self,
        store: Store,
        *,
        holder: str | None = None,
        max_stop_grace: timedelta = LONGEST_STOP_GRACE,
        turn: int = 0,
    ) -> None:
        """`holder`: the daemon of a pool, if it asks for its pool. `turn`: the passes so far."""
        self._store = store
        self._holder = holder
        self._max_stop_grace = max_stop_grace
        self._turn = turn
        self._here: Collection[str] = ()
        self.has_more = False
        """Whether the last pass skipped some groups of an owner with more than 64. The next pass looks at others."""

    def anything_waits(self) -> bool:
        """Returns whether any job waits, or could be taken from a worker that does not answer. Raises Unavailable.

        First those join the line that are held back no longer.
        """
        return placement.anything_waits(self._store)

    def claims(
        self,
        observed: Mapping[str, Sequence[DeviceReport]],
        *,
        may_claim: Callable[[], bool],
        may_postpone: bool = False,
    ) -> Generator[tuple[str, Claim]]:
        """Makes one pass over the queue. Yields each attempt, with its worker, as soon as it is claimed.

        `observed`: the devices of each worker that asks, as they are now. `may_claim` is called before each claim and
        before other jobs are asked to stop. `may_postpone`: whether a pass that claims leaves it to a later one to say
        why the others wait, and to keep further places for them. Raises Unavailable.
        """
        self._turn += 1
        self._here = observed.keys()
        self.has_more = False
        for _ in range(_MOST_READS):
            with self._store.read() as session:
                read = placement.read_plan(session, observed, max_stop_grace=self._max_stop_grace, turn=self._turn)
            self.has_more = read is not None and bool(read[0].crowded)
            if read is None or (yield from self._carry_out(*read, may_claim, may_postpone=may_postpone)):
                yield from self._take_over(observed, may_claim)
                return

    def _take_over(
        self, observed: Mapping[str, Sequence[DeviceReport]], may_claim: Callable[[], bool]
    ) -> Generator[tuple[str, Claim]]:
        """Takes jobs of remote workers that do not answer, where devices are left. Nobody stops for them."""
        with self._store.read() as session:
            if not away.any_away(session):
                return
            lost = {one.job.id: one for one in away.list_away(session)}
            line = [one.job for one in lost.values()]
            snapshot = planning.snapshot(session, line, observed, max_stop_grace=self._max_stop_grace)
        snapshot = replace(snapshot, running=tuple(job for job in snapshot.running if job.job_id not in lost))
        for start in plan(snapshot).starts:
            if start.job.id in lost and self._concerns(start) and may_claim():
                claim = self._claim(start, snapshot, instead_of=lost[start.job.id].claim)
                if claim is not None:
                    yield start.placement.worker_id, claim

    def _carry_out(
        self, snapshot: Snapshot, planned: Plan, may_claim: Callable[[], bool], *, may_postpone: bool
    ) -> Generator[tuple[str, Claim], None, bool]:
        """Plans again until nothing is left for these workers. Returns False if another has kept places meanwhile."""
        claimed = False
        while True:
            if claimed and may_postpone and not any(map(self._concerns, planned.steps)):
                return True
            kept = self._keep(snapshot, planned)
            if kept is None:
                return False
            snapshot = kept
            steps = [step for step in planned.steps if self._concerns(step)]
            if not steps:
                self._record_reasons(snapshot, planned)
                return True
            for step in steps:
                if isinstance(step, Start):
                    if not may_claim():
                        return True
                    claim = self._claim(step, snapshot)
                    if claim is None:
                        if not self._is_kept_as_planned(step, snapshot):
                            return False
                        snapshot = self._after_lost_claim(snapshot, step)
                        break
                    yield step.placement.worker_id, claim
                    claimed = True
                    snapshot = snapshot.after_start(step.job, step.placement, guest=step.guest)
                elif may_claim() and self._stop(step):
                    snapshot = snapshot.after_stop(step.displacements, message=step.reason.message)
                else:
                    snapshot = snapshot.refusing(step.job.request)
                    break
            planned = plan(snapshot)

    def _concerns(self, step: Start | Stop) -> bool:
        """Returns whether the step is one of these workers: their devices, or their jobs."""
        if isinstance(step, Start):
            return step.placement.worker_id in self._here
        return step.displacements[0].worker_id in self._here

    def _keep(self, snapshot: Snapshot, planned: Plan) -> Snapshot | None:
        """Stores which places are kept. Returns the snapshot with them, None if another worker decided otherwise."""
        known = {(job.job_id, job.worker_id) for job in snapshot.running}
        known |= {(start.job.id, start.placement.worker_id) for start in planned.starts}
        versions = placement.keep_places(self._store, snapshot.reservations, planned.reservations, known=known)
        if versions is None:
            return None
        kept = (replace(one, version=versions.get(one.place, one.version)) for one in planned.reservations)
        return replace(snapshot, reservations=tuple(kept))

    def _claim(self, start: Start, snapshot: Snapshot, *, instead_of: Claim | None = None) -> Claim | None:
        """Claims the job. `instead_of`: its lost attempt, which ends in the same transaction."""
        try:
            return self._claim_once(start, snapshot, instead_of)
        except StaleClaim:
            return None

    def _claim_once(self, start: Start, snapshot: Snapshot, instead_of: Claim | None) -> Claim | None:
        version = snapshot.version_of(start.place)
        with self._store.write("claim") as session:
            if instead_of is not None and not end.rescue(session, instead_of):
                raise StaleClaim(f"the worker of job {start.job.id} answers again")
            claim = claims.claim(
                session, start.job.id, start.placement, reservation=version, guest=start.guest, holder=self._holder
            )
            if claim is None and instead_of is not None:
                raise StaleClaim(f"job {start.job.id} cannot start now, so its lost attempt stays open")
        if claim is not None:
            uuids = ", ".join(device.uuid for device in start.placement.devices)
            logger.info("%s: attempt %d takes %s", start.job.id, claim.number, uuids or "a place in the pool")
        return claim

    def _is_kept_as_planned(self, start: Start, snapshot: Snapshot) -> bool:
        """Returns whether the place is kept for the one that the plan knows, or for nobody if it knows of nobody."""
        with self._store.read() as session:
            return reservations.version_of(session, *start.place) == snapshot.version_of(start.place)

    def _after_lost_claim(self, snapshot: Snapshot, start: Start) -> Snapshot:
        """Returns what is known now that the job could not be claimed."""
        worker_id = start.placement.worker_id
        with self._store.read() as session:
            if workers.is_draining(session, worker_id):
                snapshot = snapshot.after_drain(worker_id)
            waits = waiting.waiting_among(session, [start.job.id])
        if not waits:
            return snapshot.without(start.job.id)
        # The worker drains, or another attempt has the devices: both concern all jobs with this request.
        return snapshot.refusing(start.job.request)

    def _stop(self, stop: Stop) -> bool:
        victims = [displacement.victim for displacement in stop.displacements]
        with self._store.write("preempt") as session:
            if not placement.preempt(session, victims, preemptor=stop.job.id, reason=stop.reason):
                return False
        logger.info("%s: preempts %s", stop.job.id, ", ".join(victims))
        return True

    def _record_reasons(self, snapshot: Snapshot, planned: Plan) -> None:
        """Records the new reasons. All workers build equal sentences from equal rows, so they change nothing twice."""
        recorded = snapshot.recorded
        by_shape = planned.reasons.by_shape
        new = {shape: reason for shape, reason in by_shape.items() if recorded.by_shape.get(shape) != reason}
        own: dict[Reason, list[str]] = defaultdict(list)
        for job_id, reason in planned.reasons.by_job.items():
            if recorded.messages.get(job_id) != reason.message:
                own[reason].append(job_id)
        for job_id in recorded.messages.keys() - planned.reasons.by_job.keys():
            own[WAITING].append(job_id)  # it shows its group's reason again
        if new or own:
            with self._store.write("reason") as session:
                placement.set_waiting_reasons(session, new, own)
        elif recorded.by_shape.keys() - by_shape.keys():
            placement.delete_unused_reasons(self._store)
