"""The plan of `scheduling/` as a policy: it reads the simulated cluster as the store reads the rows."""

from collections import defaultdict, deque
import math

from bench.scheduling.simulator import US, Cluster, Job
from scheduling.plan import plan
from scheduling.shapes import limit_class, looked
from scheduling.snapshot import Device, Displacement, Host, OwnerUse, Reservation, Running, Snapshot, Waiting
from scheduling.steps import Plan, Start, Stop
from scheduling.usage import HALF_LIFE
from torchyard.contract.spec.resources import Resources

_TAU_S = HALF_LIFE.total_seconds() / math.log(2)
_AT_ONCE = 8
"""The number of jobs of a group that are read first."""


class Fair:
    def __init__(self) -> None:
        self._resources: dict[int, Resources] = {}
        self._devices: dict[tuple[int, int, str | None], Device] = {}
        self._recent: dict[str, deque[int]] = defaultdict(lambda: deque(maxlen=2))
        """The last two runs of each owner."""
        self._used: dict[str, tuple[float, int]] = {}
        """Of each owner, device seconds and the time at which they were so many."""
        self._reservations: tuple[Reservation, ...] = ()
        self._displacements: tuple[Displacement, ...] = ()

    def decide(self, cluster: Cluster) -> int | None:
        while True:
            planned = self._plan(cluster)
            started = {start.job.id for start in planned.starts}
            self._reservations = tuple(one for one in planned.reservations if one.job_id not in started)
            for step in planned.steps:
                if isinstance(step, Start):
                    self._start(cluster, step)
                else:
                    self._stop(cluster, step)
            left_places = len(self._reservations) < len(planned.reservations)
            if not planned.stops and not left_places:
                return planned.again_at

    def _start(self, cluster: Cluster, step: Start) -> None:
        job = cluster.queue[step.job.id]
        cluster.start(job, int(step.placement.worker_id), guest=step.guest)
        self._displacements = tuple(one for one in self._displacements if one.job_id != job.id)

    def _stop(self, cluster: Cluster, step: Stop) -> None:
        self._displacements += step.displacements
        for one in step.displacements:
            victim = cluster.running[one.victim]
            self._note_use(victim, cluster.now)
            cluster.stop(victim)

    def ended(self, job: Job, cluster: Cluster) -> None:
        self._note_use(job, cluster.now)
        self._recent[job.trace.user].append(job.ran + cluster.now - job.started)

    def _plan(self, cluster: Cluster) -> Plan:
        """Plans with the first jobs of each group, and with more of those that are used up."""
        groups: dict[str, list[Job]] = defaultdict(list)
        for job in sorted(cluster.queue.values(), key=lambda job: job.submitted):
            groups[_shape(job)].append(job)
        named = {one.job_id for one in (*self._reservations, *self._displacements)}
        read = dict.fromkeys(groups, _AT_ONCE)
        while True:
            line = {job.id: job for shape, jobs in groups.items() for job in jobs[: read[shape]]}
            line |= {job_id: cluster.queue[job_id] for job_id in named if job_id in cluster.queue}
            planned = plan(self._snapshot(cluster, [*line.values()]))
            more = [shape for shape, _ in planned.used_up if read[shape] < len(groups[shape])]
            if not more:
                return planned
            for shape in more:
                read[shape] += 4 * _AT_ONCE

    def _snapshot(self, cluster: Cluster, line: list[Job]) -> Snapshot:
        running = tuple(self._running(job, cluster.now) for job in cluster.running.values())
        owners = {job.owner for job in running} | {job.trace.user for job in line}
        return Snapshot(
            now=cluster.now,
            hosts=tuple(self._host(host, slots) for host, slots in enumerate(cluster.slots)),
            running=running,
            line=tuple(self._waiting(job, cluster.now) for job in line),
            displacements=self._displacements,
            reservations=self._reservations,
            uses=tuple(OwnerUse(owner, "cuda", self._used_s(owner, cluster)) for owner in sorted(owners)),
        )

    def _host(self, host: int, slots: list[str | None]) -> Host:
        return Host(f"{host}", f"host-{host}", tuple(self._device(host, *one) for one in enumerate(slots)))

    def _device(self, host: int, index: int, job_id: str | None) -> Device:
        key = host, index, job_id
        if key not in self._devices:
            self._devices[key] = Device(index, f"GPU-{host}-{index}", "GPU", "cuda", 1 << 36, job_id)
        return self._devices[key]

    def _running(self, job: Job, now: int) -> Running:
        return Running(
            job_id=job.id,
            owner=job.trace.user,
            priority=0,
            preemptible=job.trace.preemptible,
            since=job.started,
            stopping=False,
            worker_id=f"{job.host}",
            resources=self._request(job.devices),
            submitted=job.submitted,
            limit_us=round(job.trace.limit * US),
            ran_us=job.ran,
            waited_us=job.waited - job.waited_first,
            fraction=_fraction(job, job.ran + now - job.started),
            usual_us=self._usual(job.trace.user),
            saved_at=now,
            guest=job.guest,
        )

    def _waiting(self, job: Job, now: int) -> Waiting:
        return Waiting(
            id=job.id,
            owner=job.trace.user,
            priority=0,
            shape=_shape(job),
            resources=self._request(job.devices),
            submitted=job.submitted,
            limit_us=round(job.trace.limit * US),
            preemptible=job.trace.preemptible,
            ran_us=job.ran,
            waited_us=job.waited_by(now),
            fraction=_fraction(job, job.ran),
            usual_us=self._usual(job.trace.user),
        )

    def _request(self, devices: int) -> Resources:
        if devices not in self._resources:
            self._resources[devices] = Resources(devices_per_node=devices, device="cuda")
        return self._resources[devices]

    def _usual(self, user: str) -> int | None:
        runs = self._recent.get(user)
        return sum(runs) // len(runs) if runs else None

    def _note_use(self, job: Job, now: int) -> None:
        user = job.trace.user
        self._used[user] = self._decayed(user, now) + _decaying(job, now), now

    def _decayed(self, user: str, now: int) -> float:
        used_s, at = self._used.get(user, (0.0, now))
        return used_s * math.exp(-(now - at) / US / _TAU_S)

    def _used_s(self, owner: str, cluster: Cluster) -> float:
        theirs = [job for job in cluster.running.values() if job.trace.user == owner]
        return self._decayed(owner, cluster.now) + sum(_decaying(job, cluster.now) for job in theirs)


def _shape(job: Job) -> str:
    left = limit_class(round(job.trace.limit * US) - job.ran)
    return f"{job.trace.user} {job.devices} {job.trace.preemptible} {left} {looked(job.ran)}"


def _fraction(job: Job, ran_us: int) -> float | None:
    return None if job.trace.announced is None else min(1.0, ran_us / US / job.trace.announced)


def _decaying(job: Job, now: int) -> float:
    """Returns the device seconds of the attempt until now, each weighted by how long ago it was."""
    return job.devices * _TAU_S * (1 - math.exp(-(now - job.started) / US / _TAU_S))
