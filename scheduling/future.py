"""The cluster as it becomes, if all jobs run as long as they are believed to."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
import heapq

from scheduling.belief import believed_left, is_unknown, limit_left
from scheduling.credit import OwnerKind
from scheduling.snapshot import (
    OVERDUE_AFTER,
    Device,
    Displacement,
    Host,
    Kind,
    OwnerUse,
    Reservation,
    Running,
    Snapshot,
    Waiting,
    started,
)
from scheduling.steps import Start, Stop
from scheduling.usage import decayed, used_at

_OVERDUE_US = OVERDUE_AFTER // timedelta(microseconds=1)


class Future:
    """Begins as the snapshot, and passes from one moment to the next."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.now = snapshot.now
        self.starts: dict[str, int] = {}
        """When each job that waited at first starts first."""
        self._seen = replace(snapshot, refused=frozenset(), waits_count_until=snapshot.now)
        self._waited = {job.id for job in snapshot.line}
        self._hosts = {host.id: _settled(host) for host in snapshot.hosts}
        self._running: dict[str, Running] = {}
        self._line = {job.id: job for job in snapshot.line}
        self._allowances = dict(snapshot.allowances)
        self._uses: dict[OwnerKind, OwnerUse] = {(use.owner, use.kind): use for use in snapshot.uses}
        self._held: dict[str, tuple[OwnerKind, int]] = {}
        """Whose devices each running job holds, and how many."""
        self._ends: list[tuple[int, str]] = []
        self._unknown: set[str] = set()
        """The running jobs of which nobody knows how long they run."""
        for job in snapshot.running:
            self._run(job)
        self._end_due()

    @property
    def _passed_us(self) -> int:
        return self.now - (self._seen.waits_count_until or 0)

    def snapshot(self) -> Snapshot:
        return replace(
            self._seen,
            now=self.now,
            hosts=tuple(self._hosts.values()),
            running=tuple(self._running.values()),
            line=tuple(self._line.values()),
            allowances=self._allowances,
            uses=tuple(self._uses.values()),
        )

    def carry_out(self, steps: Sequence[Start | Stop], reservations: Sequence[Reservation]) -> None:
        """Starts and stops jobs. Another plan may do more at this moment."""
        for step in steps:
            if isinstance(step, Start):
                self._start(step)
            else:
                self._stop(step)
        begun = {step.job.id for step in steps if isinstance(step, Start)}
        self._seen = replace(self._seen, reservations=tuple(one for one in reservations if one.job_id not in begun))

    def next_moment(self, again_at: int | None) -> int | None:
        """Returns when something happens next; None if nothing does any more."""
        ends = [self._ends[0][0]] if self._ends else []
        return min([*ends, *([] if again_at is None else [again_at])], default=None)

    def is_guess(self, at: int) -> bool:
        """Returns whether a job ends by then of which nobody knows how long it runs."""
        return any((self._running[job_id].ends or at) <= at for job_id in self._unknown)

    def pass_to(self, at: int) -> None:
        """Lets time pass, and ends what ends then."""
        passed = at - self.now
        self._uses = self._used_after(passed)
        self._keep([one for one in self._seen.displacements if one.until >= at])
        self.now = at
        self._end_due()

    def _start(self, step: Start) -> None:
        job, placement = step.job, step.placement
        del self._line[job.id]
        self._keep([one for one in self._seen.displacements if one.job_id != job.id])
        if job.id in self._waited:
            self.starts.setdefault(job.id, self.now)
        if (allowance := self._allowances.get(job.owner)) is not None:
            self._allowances[job.owner] = allowance.with_job(job.resources.total_devices)
        if not placement.devices:
            pools = (one.with_job(job.owner) if one.id == placement.worker_id else one for one in self._seen.pools)
            self._seen = replace(self._seen, pools=tuple(pools))
            return
        self._hosts[placement.worker_id] = _with_job(self._hosts[placement.worker_id], placement.devices, job.id)
        begun = started(job, placement.worker_id, now=self.now, guest=step.guest)
        waited_us = job.waited_us + self._passed_us
        self._run(replace(begun, waited_us=waited_us if job.ran_us else 0))

    def _keep(self, displacements: Sequence[Displacement]) -> None:
        if len(displacements) != len(self._seen.displacements):
            self._seen = replace(self._seen, displacements=tuple(displacements))

    def _run(self, job: Running) -> None:
        ends = self.now + believed_left(job, self.now)
        self._running[job.job_id] = replace(job, ends=ends)
        heapq.heappush(self._ends, (ends, job.job_id))
        if is_unknown(job):
            self._unknown.add(job.job_id)
        host = self._hosts.get(job.worker_id)
        held: list[Kind] = (
            [] if host is None else [device.kind for device in host.devices if device.job_id == job.job_id]
        )
        if held:
            self._held[job.job_id] = (job.owner, held[0]), len(held)

    def _stop(self, step: Stop) -> None:
        until = self.now + _OVERDUE_US
        self._keep([*self._seen.displacements, *(replace(one, until=until) for one in step.displacements)])
        for one in step.displacements:
            self._requeue(self._running[one.victim])

    def _end_due(self) -> None:
        while self._ends and self._ends[0][0] <= self.now:
            at, job_id = heapq.heappop(self._ends)
            job = self._running.get(job_id)
            if job is None or job.ends != at:
                continue
            if self._comes_back(job):
                self._requeue(job)
            else:
                self._leave(job)

    def _comes_back(self, job: Running) -> bool:
        """Returns whether a job that was asked to stop is queued again."""
        host = self._hosts.get(job.worker_id)
        is_victim = any(one.victim == job.job_id for one in self._seen.displacements)
        return job.stopping and (is_victim or (host is not None and host.draining))

    def _requeue(self, job: Running) -> None:
        """Stops the job. Its work so far is kept."""
        self._leave(job)
        self._line[job.job_id] = _waiting_again(job, self.now, waited_us=job.waited_us - self._passed_us)

    def _leave(self, job: Running) -> None:
        del self._running[job.job_id]
        self._unknown.discard(job.job_id)
        self._held.pop(job.job_id, None)
        if (host := self._hosts.get(job.worker_id)) is not None:
            self._hosts[host.id] = _without_job(host, job.job_id)
        if (allowance := self._allowances.get(job.owner)) is not None:
            self._allowances[job.owner] = allowance.without_job(job.resources.total_devices)

    def _used_after(self, passed_us: int) -> dict[OwnerKind, OwnerUse]:
        held: dict[OwnerKind, int] = {}
        for key, count in self._held.values():
            held[key] = held.get(key, 0) + count
        left = decayed(1.0, after_us=passed_us)
        use_by_key = {
            key: OwnerUse(use.owner, use.kind, use.used_s * left, use.weight) if use.used_s else use
            for key, use in self._uses.items()
        }
        for key, count in held.items():
            use = use_by_key.get(key) or OwnerUse(key[0], key[1], 0.0)
            more = used_at(passed_us, devices=count, began=0, ended=passed_us)
            use_by_key[key] = replace(use, used_s=use.used_s + more)
        return use_by_key


def _waiting_again(job: Running, now: int, *, waited_us: int) -> Waiting:
    """Returns a job that was stopped now. Nobody stands for it in the line: its shape is its own."""
    ran_us, left_us = job.ran_us + max(0, now - job.since), max(0, (job.ends or now) - now)
    knows = left_us < limit_left(job, now) and ran_us > 0
    return Waiting(
        id=job.job_id,
        owner=job.owner,
        priority=job.priority,
        shape=f"stopped {job.job_id}",
        resources=job.resources,
        submitted=job.submitted,
        limit_us=job.limit_us,
        preemptible=job.preemptible,
        ran_us=ran_us,
        waited_us=waited_us,
        fraction=ran_us / (ran_us + left_us) if knows else job.fraction,
        usual_us=job.usual_us,
        home=job.worker_id,
    )


def _settled(host: Host) -> Host:
    """Returns the host when its devices have released the memory of jobs that have ended."""
    if not any(device.returning for device in host.devices):
        return host
    devices = (replace(one, blocked=None, returning=False) if one.returning else one for one in host.devices)
    return replace(host, devices=tuple(devices))


def _with_job(host: Host, devices: Sequence[Device], job_id: str) -> Host:
    taken = {device.uuid for device in devices}
    held = (device.held_by(job_id) if device.uuid in taken else device for device in host.devices)
    return replace(host, devices=tuple(held))


def _without_job(host: Host, job_id: str) -> Host:
    free = (replace(device, job_id=None) if device.job_id == job_id else device for device in host.devices)
    return replace(host, devices=tuple(free))
