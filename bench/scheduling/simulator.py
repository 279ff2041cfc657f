"""Simulates a cluster by events: the jobs of a trace are submitted, and a policy starts and stops them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
import heapq
from typing import Protocol

from bench.scheduling.traces import Trace, TraceJob

US = 1_000_000
RESTART_US = 60 * US
"""The cost of a stop: the job runs longer by this time."""


@dataclass(eq=False, slots=True)
class Job:
    """All times are microseconds."""

    trace: TraceJob
    id: str
    submitted: int
    left: int
    """What it needs still, without restarts."""
    ran: int = 0
    waited: int = 0
    waited_first: int = 0
    """Until its first start."""
    queued_since: int = 0
    started: int = 0
    attempt: int = 0
    host: int | None = None
    guest: bool = False

    @property
    def devices(self) -> int:
        return self.trace.devices

    @property
    def restart(self) -> int:
        """The time in which this attempt gains nothing."""
        return RESTART_US if self.attempt > 1 else 0

    def waited_by(self, now: int) -> int:
        return self.waited if self.host is not None else self.waited + now - self.queued_since


@dataclass(slots=True)
class Cluster:
    """What a policy sees and changes."""

    sizes: tuple[int, ...]
    now: int = 0
    queue: dict[str, Job] = field(default_factory=dict[str, Job])
    """In the order of submission, but for jobs that were stopped, which are last."""
    running: dict[str, Job] = field(default_factory=dict[str, Job])
    free: list[int] = field(default_factory=list[int])
    slots: list[list[str | None]] = field(default_factory=list[list[str | None]])
    """By host, the job that holds each device."""
    ends: list[tuple[int, str, int]] = field(default_factory=list[tuple[int, str, int]])

    def start(self, job: Job, host: int, *, guest: bool = False) -> None:
        del self.queue[job.id]
        self.running[job.id] = job
        job.waited += self.now - job.queued_since
        if job.attempt == 0:
            job.waited_first = job.waited
        job.started, job.host, job.guest, job.attempt = self.now, host, guest, job.attempt + 1
        self.free[host] -= job.devices
        assert self.free[host] >= 0, "devices are given once"
        slots = self.slots[host]
        for index in [index for index, holder in enumerate(slots) if holder is None][: job.devices]:
            slots[index] = job.id
        heapq.heappush(self.ends, (self.now + job.left + job.restart, job.id, job.attempt))

    def stop(self, job: Job) -> None:
        """Stops the job, which is queued again with its progress."""
        ran = self._leave(job)
        job.left -= max(0, ran - job.restart)
        job.queued_since, job.host = self.now, None
        self.queue[job.id] = job

    def end(self, job: Job) -> None:
        self._leave(job)
        job.left = 0

    def _leave(self, job: Job) -> int:
        assert job.host is not None
        ran = self.now - job.started
        del self.running[job.id]
        job.ran += ran
        self.free[job.host] += job.devices
        slots = self.slots[job.host]
        self.slots[job.host] = [None if holder == job.id else holder for holder in slots]
        return ran


class Policy(Protocol):
    def decide(self, cluster: Cluster) -> int | None:
        """Starts and stops jobs. Returns when it must be asked again at the latest."""
        ...

    def ended(self, job: Job, cluster: Cluster) -> None:
        """Notes that the job has ended or was stopped."""
        ...


def simulate(trace: Trace, policy: Policy) -> Sequence[Job]:
    """Runs all jobs of the trace to their ends."""
    jobs = [
        Job(one, f"job_{one.number:06}", at := round(one.submitted * US), round(one.run * US), queued_since=at)
        for one in trace.jobs
    ]
    cluster = Cluster(trace.hosts, free=[*trace.hosts], slots=[[None] * size for size in trace.hosts])
    by_id, arrived, again = {job.id: job for job in jobs}, 0, None
    while arrived < len(jobs) or cluster.ends:
        times = [cluster.ends[0][0]] if cluster.ends else []
        times += [jobs[arrived].submitted] if arrived < len(jobs) else []
        times += [again] if again is not None else []
        cluster.now = max(cluster.now, min(times))
        while cluster.ends and cluster.ends[0][0] <= cluster.now:
            _, job_id, attempt = heapq.heappop(cluster.ends)
            job = by_id[job_id]
            if job.host is not None and job.attempt == attempt:
                policy.ended(job, cluster)
                cluster.end(job)
        while arrived < len(jobs) and jobs[arrived].submitted <= cluster.now:
            cluster.queue[jobs[arrived].id] = jobs[arrived]
            arrived += 1
        again = policy.decide(cluster) if cluster.queue else None
    assert not cluster.queue, "all jobs run"
    return jobs
