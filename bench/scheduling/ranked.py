"""Policies that run the jobs with the highest rank, and stop preemptible ones for them: LAS and SRTF."""

from collections.abc import Callable

from bench.scheduling.simple import best_fit
from bench.scheduling.simulator import US, Cluster, Job

_TICK_US = 1800 * US
_FIRST_LEVEL_US = 3600 * US


class Ranked:
    def __init__(self, rank: Callable[[Job, int], float]) -> None:
        self._rank = rank

    def decide(self, cluster: Cluster) -> int:
        free = [*cluster.sizes]
        for job in cluster.running.values():
            if not job.trace.preemptible:
                assert job.host is not None
                free[job.host] -= job.devices
        jobs = [*(job for job in cluster.running.values() if job.trace.preemptible), *cluster.queue.values()]
        starts: list[tuple[Job, int]] = []
        for job in sorted(jobs, key=lambda job: (self._rank(job, cluster.now), job.submitted, job.id)):
            host = job.host
            if host is None or free[host] < job.devices:
                host = best_fit(free, job.devices) if job.host is None else None
            if host is not None:
                free[host] -= job.devices
                starts += [(job, host)] if job.host is None else []
            elif job.host is not None:
                cluster.stop(job)
        for job, host in starts:
            cluster.start(job, host)
        return cluster.now + _TICK_US

    def ended(self, job: Job, cluster: Cluster) -> None:
        """Nothing is noted."""


def las() -> Ranked:
    """Returns least attained service: device time so far, in levels of which each is twice as long."""
    return Ranked(lambda job, now: _level(job.devices * (job.ran + (0 if job.host is None else now - job.started))))


def srtf() -> Ranked:
    """Returns shortest remaining time first, as one who knows the true runs could do it."""
    return Ranked(lambda job, now: job.left - (0 if job.host is None else max(0, now - job.started - job.restart)))


def _level(service: int) -> int:
    return (service // _FIRST_LEVEL_US).bit_length()
