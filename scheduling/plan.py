"""The plan of one worker for a snapshot: which jobs it starts on its devices, which it stops, and why others wait."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from scheduling import reasons
from scheduling.capacity import Capacity
from scheduling.devices import choose_victims, pick_devices
from scheduling.reasons import Explainer
from scheduling.snapshot import Device, Group, Placement, Reservation, Running, Snapshot, Waiting
from torchyard.contract.job import Reason
from torchyard.contract.spec import Resources


@dataclass(frozen=True)
class Start:
    """The job starts there."""

    job: Waiting
    placement: Placement


@dataclass(frozen=True)
class Stop:
    """The victims of the reservations are asked to stop, so that the job can start."""

    job: Waiting
    reservations: tuple[Reservation, ...]
    reason: Reason
    """Why the job waits from then on."""


@dataclass(frozen=True)
class Reasons:
    """Why jobs wait. A job's own reason stands before that of its shape."""

    by_shape: Mapping[str, Reason]
    by_job: Mapping[str, Reason]

    def of(self, job: Waiting) -> Reason | None:
        """Returns why the job waits; None if the plan says nothing of it."""
        return self.by_job.get(job.id) or self.by_shape.get(job.shape)


@dataclass(frozen=True)
class Plan:
    """What to do, and the reasons of the jobs that wait when it is done."""

    starts: tuple[Start, ...]
    stops: tuple[Stop, ...]
    reasons: Reasons

    @property
    def steps(self) -> list[Start | Stop]:
        """Starts and stops in the order of their jobs in the line, in which they must be carried out."""
        return sorted((*self.starts, *self.stops), key=lambda step: step.job.order)


def plan(snapshot: Snapshot) -> Plan:
    """Returns what the worker `snapshot.here` does. Equal snapshots give equal plans, in whatever order they list."""
    planning = _Planning(snapshot)
    planning.walk()
    return Plan(tuple(planning.starts), tuple(planning.stops), planning.reasons())


def used_up(snapshot: Snapshot) -> set[Group]:
    """Returns the groups of which no job in the line waits: to be complete, the line needs their next jobs."""
    planning = _Planning(snapshot)
    planning.walk()
    return {job.group for job in snapshot.line} - planning.closed


class _Planning:
    """One walk along the line. The free devices only become fewer and the priorities lower on the way."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.starts: list[Start] = []
        self.stops: list[Stop] = []
        self.closed: set[Group] = set()
        """Groups that wait: no job behind the first one that waits is considered."""
        self._snapshot = snapshot
        self._here = next(host for host in snapshot.hosts if host.id == snapshot.here)
        self._capacity = Capacity(snapshot.hosts)
        self._allowances = dict(snapshot.allowances)
        self._reservations = _by_job(snapshot.reservations)
        self._waiting: dict[Resources, set[str]] = defaultdict(set)
        """The shapes of the jobs that do not fit, by what they request."""
        self._over_quota: dict[str, Reason] = {}
        self._own_reasons: dict[str, Reason] = {}

    def walk(self) -> None:
        """Considers the jobs in their order. A job with a reservation does not stand for its group."""
        alone = set(self._reservations)
        for job in sorted(self._snapshot.line, key=lambda job: job.order):
            if job.id in alone:
                self._consider(job)
            elif job.group not in self.closed and not self._consider(job):
                self.closed.add(job.group)

    def reasons(self) -> Reasons:
        reservations = [one for several in self._reservations.values() for one in several]
        explainer = Explainer(self._capacity.hosts, {one.victim: one.owner for one in reservations})
        by_shape = dict(self._over_quota)
        for resources, shapes in self._waiting.items():
            by_shape |= dict.fromkeys(shapes, explainer.explain(resources))
        return Reasons(by_shape, self._own_reasons)

    def _consider(self, job: Waiting) -> bool:
        """Starts the job, stops others for it, or notes that it waits. Returns whether its group goes on."""
        if (refusal := self._refusal(job)) is not None:
            self._over_quota[job.shape] = reasons.over_quota(refusal)
            return False
        # What did not fit before on this walk does not fit now, and nothing can be stopped for it.
        hopeless = job.resources in self._waiting or job.resources in self._snapshot.refused or self._here.draining
        if not hopeless:
            chosen = pick_devices(job.resources, self._capacity.offered(self._here.id))
            if chosen is not None:
                self._start(job, chosen)
                return True
        reservations = self._reservations.get(job.id)
        if reservations is None and not hopeless:
            reservations = self._stop_for(job)
        if not reservations:
            self._waiting[job.resources].add(job.shape)
            return False
        self._own_reasons[job.id] = reasons.preempting(reservations)
        for reservation in reservations:
            if reservation.until >= self._snapshot.now:  # no job behind this one may take the devices
                self._capacity.reserve(reservation.worker_id, job.resources, job_id=job.id)
        return True

    def _refusal(self, job: Waiting) -> str | None:
        allowance = self._allowances.get(job.owner)
        return None if allowance is None else allowance.refusal(job.resources.total_devices)

    def _start(self, job: Waiting, chosen: Sequence[Device]) -> None:
        self._capacity.take(self._here.id, chosen, job_id=job.id)
        if (allowance := self._allowances.get(job.owner)) is not None:
            self._allowances[job.owner] = allowance.with_job(len(chosen))
        self.starts.append(Start(job, Placement(self._here.id, tuple(chosen))))

    def _stop_for(self, job: Waiting) -> list[Reservation]:
        """Stops jobs of this worker for this one, if that helps."""
        lower = [running for running in self._snapshot.running if self._may_stop(running, job)]
        if not lower or self._capacity.fits_elsewhere(self._here.id, job.resources):
            return []
        victims = choose_victims(job.resources, self._capacity.offered(self._here.id), lower)
        if not victims:
            return []
        made = [self._reserve(victim, job) for victim in victims]
        self.stops.append(Stop(job, tuple(made), reasons.preempting(made)))
        self._reservations[job.id] = made
        return made

    def _may_stop(self, running: Running, job: Waiting) -> bool:
        if running.worker_id != self._here.id or running.stopping or not running.preemptible:
            return False
        asked = any(one.victim == running.job_id for stop in self.stops for one in stop.reservations)
        return running.priority < job.priority and not asked

    def _reserve(self, victim: Running, job: Waiting) -> Reservation:
        return Reservation(
            job_id=job.id,
            owner=job.owner,
            victim=victim.job_id,
            victim_owner=victim.owner,
            worker_id=self._here.id,
            worker=self._here.name,
            until=self._snapshot.now,
        )


def _by_job(reservations: Iterable[Reservation]) -> dict[str, list[Reservation]]:
    found: dict[str, list[Reservation]] = {}
    for reservation in sorted(reservations, key=lambda reservation: reservation.victim):
        found.setdefault(reservation.job_id, []).append(reservation)
    return found
