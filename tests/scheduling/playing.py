"""Carries out one plan after the other, on a cluster where jobs run as long as they are believed to."""

from dataclasses import replace

from scheduling.belief import believed_left, is_unknown
from scheduling.credit import OwnerKind
from scheduling.plan import plan
from scheduling.snapshot import OVERDUE_AFTER, Device, Host, OwnerUse, Running, Snapshot, Waiting, started
from scheduling.steps import Start, Stop
from scheduling.usage import decayed, used_at

_OVERDUE_US = round(OVERDUE_AFTER.total_seconds() * 1e6)


class Playing:
    """What happens if nobody submits anything, and no job is stopped but for others."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.starts: dict[str, int] = {}
        self._line = {job.id for job in snapshot.line}
        hosts = tuple(replace(host, devices=tuple(map(_released, host.devices))) for host in snapshot.hosts)
        running = tuple(_with_end(job, snapshot.now) for job in snapshot.running)
        self._now = replace(snapshot, hosts=hosts, running=running, refused=frozenset())

    def run(self) -> dict[str, int]:
        """Returns when each job of the line starts first."""
        at: int | None = self._now.now
        while at is not None:
            self._pass_time(at)
            again_at = self._plan()
            ends = [job.ends for job in self._now.running if job.ends is not None]
            at = min([*ends, *([] if again_at is None else [again_at])], default=None)
            ended = [job for job in self._now.running if job.ends is not None and at is not None and job.ends <= at]
            if any(map(is_unknown, ended)):
                break  # what starts later is unknown
        return self.starts

    def _plan(self) -> int | None:
        while True:
            planned = plan(self._now)
            self._now = replace(self._now, reservations=planned.reservations)
            for step in planned.steps:
                if isinstance(step, Start):
                    self._start(step)
                else:
                    self._stop(step)
            if not planned.steps:
                return planned.again_at

    def _start(self, step: Start) -> None:
        job, placement = step.job, step.placement
        if job.id in self._line:
            self.starts.setdefault(job.id, self._now.now)
        (host,) = (host for host in self._now.hosts if host.id == placement.worker_id)
        free = [device for device in host.devices if device.job_id is None and device.blocked is None]
        assert len(placement.devices) == job.resources.total_devices and {*placement.devices} <= {*free}
        after = self._now.after_start(job, placement, guest=step.guest)
        waited_us = job.waited_us if job.ran_us else 0
        begun = started(job, placement.worker_id, now=self._now.now, guest=step.guest)
        running = (*self._now.running, _with_end(replace(begun, waited_us=waited_us), self._now.now))
        self._now = replace(after, running=running)

    def _stop(self, step: Stop) -> None:
        until = self._now.now + _OVERDUE_US
        asked = tuple(replace(one, until=until) for one in step.displacements)
        self._now = self._now.after_stop(asked, message=step.reason.message)
        victims = {one.victim for one in step.displacements}
        for job in [job for job in self._now.running if job.job_id in victims]:
            self._end(job, again=True)

    def _pass_time(self, at: int) -> None:
        passed = at - self._now.now
        assert passed >= 0
        self._now = replace(
            self._now,
            now=at,
            line=tuple(replace(job, waited_us=job.waited_us + passed) for job in self._now.line),
            uses=tuple(self._used(passed)),
            displacements=tuple(one for one in self._now.displacements if one.until >= at or not passed),
        )
        victims = {one.victim for one in self._now.displacements}
        drained = {host.id for host in self._now.hosts if host.draining}
        for job in [job for job in self._now.running if job.ends is not None and job.ends <= at]:
            self._end(job, again=job.stopping and (job.job_id in victims or job.worker_id in drained))

    def _end(self, job: Running, *, again: bool) -> None:
        hosts = tuple(replace(host, devices=_without(host, job.job_id)) for host in self._now.hosts)
        running = tuple(other for other in self._now.running if other.job_id != job.job_id)
        allowances = dict(self._now.allowances)
        if (allowance := allowances.get(job.owner)) is not None:
            held = max(0, allowance.held - job.resources.total_devices)
            allowances[job.owner] = replace(allowance, held=held, runs=max(0, allowance.runs - 1))
        line = (*self._now.line, _again(job, self._now.now)) if again else self._now.line
        self._now = replace(self._now, hosts=hosts, running=running, allowances=allowances, line=line)

    def _used(self, passed: int) -> list[OwnerUse]:
        owner = {job.job_id: job.owner for job in self._now.running}
        held: list[OwnerKind] = [
            (owner[one.job_id], one.kind) for host in self._now.hosts for one in host.devices if one.job_id in owner
        ]
        uses = {key: OwnerUse(key[0], key[1], 0.0) for key in held}
        uses |= {(use.owner, use.kind): use for use in self._now.uses}
        found: list[OwnerUse] = []
        for key, use in uses.items():
            more = used_at(passed, devices=held.count(key), began=0, ended=passed)
            found.append(replace(use, used_s=decayed(use.used_s, after_us=passed) + more))
        return found


def _with_end(job: Running, now: int) -> Running:
    return replace(job, ends=now + believed_left(job, now))


def _again(job: Running, now: int) -> Waiting:
    """Returns the job as it waits after a stop: it needs still what it was believed to."""
    assert job.ends is not None
    ran_us, left_us = job.ran_us + now - job.since, job.ends - now
    knows = ran_us > 0 and left_us < job.limit_us - ran_us
    return Waiting(
        id=job.job_id,
        owner=job.owner,
        priority=job.priority,
        shape=f"again {job.job_id}",
        resources=job.resources,
        submitted=job.submitted,
        limit_us=job.limit_us,
        preemptible=job.preemptible,
        ran_us=ran_us,
        waited_us=job.waited_us,
        fraction=ran_us / (ran_us + left_us) if knows else job.fraction,
        usual_us=job.usual_us,
        home=job.worker_id,
    )


def _without(host: Host, job_id: str) -> tuple[Device, ...]:
    return tuple(replace(device, job_id=None) if device.job_id == job_id else device for device in host.devices)


def _released(device: Device) -> Device:
    return replace(device, blocked=None, returning=False) if device.returning else device
