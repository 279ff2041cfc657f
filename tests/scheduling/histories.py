"""What happens on a small cluster over days: jobs arrive, run at most to their limits, lie about progress, and stop."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from scheduling.plan import plan
from scheduling.shapes import limit_class, looked
from scheduling.snapshot import Device, Host, Reservation, Running, Snapshot, Waiting
from scheduling.steps import Plan, Start, Stop
from tests.scheduling.clusters import HOUR, MINUTE, NOW
from torchyard.contract.spec.resources import Resources

GRACE = MINUTE // 2
_OWNERS = ("ada", "bob", "eve")


@dataclass(frozen=True)
class HistoryJob:
    gap: int
    """Since the arrival of the one before."""
    owner: str
    count: int
    limit: int
    part: float
    """Of its limit, what it needs."""
    preemptible: bool
    fraction: float | None
    """What it tells of its progress, true or not."""
    usual: int | None


@dataclass(frozen=True)
class History:
    hosts: Sequence[int]
    """Their slots."""
    jobs: Sequence[HistoryJob]
    grace: int
    """What a stop takes."""


@dataclass
class Started:
    start: Start
    at: int
    line: tuple[Waiting, ...]
    """Who waited when it was planned."""
    reservations: tuple[Reservation, ...]
    """What is kept since."""
    first_look: bool
    """Whether others stopped for it because it hardly ran."""
    kept_since: int | None
    """Since when a place has been kept for it, on one host after the other; None: it had none."""


@dataclass
class Past:
    """What has happened."""

    starts: list[Started] = field(default_factory=list[Started])
    plans: list[tuple[Snapshot, Plan]] = field(default_factory=list[tuple[Snapshot, Plan]])
    bounds: dict[str, int] = field(default_factory=dict[str, int])
    """The first bound of each job since it was queued last."""
    late: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """Jobs that started after their first bound, and by how much."""


@st.composite
def histories(draw: st.DrawFn) -> History:
    hosts = draw(st.lists(st.integers(2, 4), min_size=1, max_size=2))
    gaps = st.sampled_from([0, MINUTE, 20 * MINUTE, HOUR, 40 * HOUR])
    limits = st.sampled_from([10 * MINUTE, HOUR, 5 * HOUR, 24 * HOUR, 60 * HOUR])
    jobs = st.builds(
        HistoryJob,
        gap=gaps,
        owner=st.sampled_from(_OWNERS),
        count=st.integers(1, max(hosts)),
        limit=limits,
        part=st.sampled_from([1.0, 0.8, 0.3, 0.01]),
        preemptible=st.booleans(),
        fraction=st.sampled_from([None, 0.0, 0.2, 0.9, 1.0, 7.0, float("nan")]),
        usual=st.sampled_from([None, 5 * MINUTE, HOUR]),
    )
    return History(hosts, draw(st.lists(jobs, min_size=6, max_size=24)), draw(st.sampled_from([0, GRACE])))


class Simulation:
    def __init__(self, history: History) -> None:
        self.past = Past()
        self._history = history
        self._left: dict[str, int] = {}
        self._stops: dict[str, int] = {}
        """When each job that was asked to stop has stopped."""
        self._looks: set[str] = set()
        self._kept: dict[str, int] = {}
        """Since when a place has been kept for each job that has one."""
        hosts = tuple(
            Host(
                f"wrk_{number}",
                f"box-{number}",
                tuple(Device(index, f"cpu-{number}-{index}", "slot", "cpu") for index in range(count)),
            )
            for number, count in enumerate(history.hosts)
        )
        self._snapshot = Snapshot(now=NOW, hosts=hosts, running=(), line=())

    def run(self) -> Past:
        """Lets everything happen, one moment after the other, and plans at each."""
        arrivals: list[tuple[int, Waiting, int]] = []
        at = NOW
        for number, job in enumerate(self._history.jobs):
            at += job.gap
            run = max(1, round(job.limit * job.part))
            arrivals.append((at, _waiting(job, f"job_{number:02}", at), run))
        again: int | None = None
        while arrivals or self._snapshot.running:
            moments = [*([arrivals[0][0]] if arrivals else []), *map(self._end_of, self._snapshot.running)]
            self._pass_time(min([*moments, *([again] if again is not None else [])]))
            for job in [job for job in self._snapshot.running if self._end_of(job) <= self._snapshot.now]:
                self._end(job)
            while arrivals and arrivals[0][0] <= self._snapshot.now:
                _, job, run = arrivals.pop(0)
                self._left[job.id] = run
                self._snapshot = replace(self._snapshot, line=(*self._snapshot.line, job))
            again = self._plan()
        assert not self._snapshot.line, "all have run"
        return self.past

    def _plan(self) -> int | None:
        """Plans until nothing starts. Returns when a plan may say something else by its time alone."""
        planned = self._plan_once()
        while planned.starts:
            planned = self._plan_once()
        return planned.again_at

    def _plan_once(self) -> Plan:
        planned = plan(self._snapshot)
        self.past.plans.append((self._snapshot, planned))
        before = self._snapshot
        self._snapshot = replace(self._snapshot, reservations=planned.reservations)
        kept = {one.job_id: self._kept.get(one.job_id, before.now) for one in before.reservations}
        self._kept = {one.job_id: before.now for one in planned.reservations} | kept
        for one in planned.reservations:
            self.past.bounds.setdefault(one.job_id, one.bound)
        for step in planned.steps:
            if isinstance(step, Start):
                self._start(step, before)
            else:
                self._stop(step)
        return planned

    def _pass_time(self, until: int) -> None:
        passed = until - self._snapshot.now
        assert passed >= 0
        line = tuple(replace(job, waited_us=job.waited_us + passed) for job in self._snapshot.line)
        displacements = tuple(one for one in self._snapshot.displacements if one.until >= until)
        self._snapshot = replace(self._snapshot, now=until, line=line, displacements=displacements)

    def _end_of(self, job: Running) -> int:
        natural = job.since + self._left[job.job_id]
        return min(natural, self._stops.get(job.job_id, natural))

    def _start(self, step: Start, planned_on: Snapshot) -> None:
        now, job = self._snapshot.now, step.job
        (host,) = (host for host in self._snapshot.hosts if host.id == step.placement.worker_id)
        assert all(device in host.devices and device.job_id is None for device in step.placement.devices), "free"
        assert len(step.placement.devices) == job.resources.total_devices
        bound = self.past.bounds.pop(job.id, None)
        if bound is not None and now > bound + GRACE:
            self.past.late.append((job.id, now - bound))
        kept = self._kept.get(job.id)
        looks = job.id in self._looks
        self.past.starts.append(Started(step, now, planned_on.line, self._snapshot.reservations, looks, kept))
        self._looks.discard(job.id)
        self._snapshot = self._snapshot.after_start(job, step.placement, guest=step.guest)

    def _stop(self, step: Stop) -> None:
        until = self._snapshot.now + self._history.grace
        asked = tuple(replace(one, until=until + MINUTE) for one in step.displacements)
        if step.why == "first_look":
            self._looks.add(step.job.id)
        for one in asked:
            assert one.victim not in self._stops, "nobody is asked twice"
            self._stops[one.victim] = until
        self._snapshot = self._snapshot.after_stop(asked, message=step.reason.message)

    def _end(self, job: Running) -> None:
        """Ends the job. One that was stopped is queued again."""
        now = self._snapshot.now
        ran = now - job.since
        self._left[job.job_id] -= ran
        hosts = tuple(_without(host, job.job_id) for host in self._snapshot.hosts)
        running = tuple(other for other in self._snapshot.running if other.job_id != job.job_id)
        self._snapshot = replace(self._snapshot, hosts=hosts, running=running)
        self._stops.pop(job.job_id, None)
        if self._left[job.job_id] > 0:
            again = _requeued(job, ran)
            self._snapshot = replace(self._snapshot, line=(*self._snapshot.line, again))


def _waiting(job: HistoryJob, job_id: str, at: int) -> Waiting:
    return Waiting(
        id=job_id,
        owner=job.owner,
        priority=0,
        shape=_shape(job.owner, job.count, job.preemptible, job.limit, 0),
        resources=Resources(devices_per_node=job.count),
        submitted=at,
        limit_us=job.limit,
        preemptible=job.preemptible,
        fraction=job.fraction,
        usual_us=job.usual,
    )


def _requeued(job: Running, ran: int) -> Waiting:
    ran += job.ran_us
    return Waiting(
        id=job.job_id,
        owner=job.owner,
        priority=job.priority,
        shape=_shape(job.owner, job.resources.total_devices, job.preemptible, job.limit_us - ran, ran),
        resources=job.resources,
        submitted=job.submitted,
        limit_us=job.limit_us,
        preemptible=job.preemptible,
        ran_us=ran,
        fraction=job.fraction,
        usual_us=job.usual_us,
    )


def _shape(owner: str, count: int, preemptible: bool, left: int, ran: int) -> str:
    return f"{owner}/{count}/{preemptible}/{limit_class(left)}/{looked(ran)}"


def _without(host: Host, job_id: str) -> Host:
    devices = tuple(replace(device, job_id=None) if device.job_id == job_id else device for device in host.devices)
    return replace(host, devices=devices)
