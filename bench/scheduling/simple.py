"""Policies that stop no job: `today`, first come first served, and EASY."""

from random import Random

from bench.scheduling.simulator import US, Cluster, Job


class Today:
    """What was done before: hosts decide for themselves, in any order, and whatever fits starts, the oldest first."""

    def __init__(self, seed: str) -> None:
        self._random = Random(seed)

    def decide(self, cluster: Cluster) -> None:
        hosts = [*range(len(cluster.sizes))]
        self._random.shuffle(hosts)
        line = sorted(cluster.queue.values(), key=lambda job: job.submitted)
        least = min(job.devices for job in line)
        for host in hosts:
            if cluster.free[host] < least:
                continue
            for job in line:
                if job.host is None and job.devices <= cluster.free[host]:
                    cluster.start(job, host)
                    if cluster.free[host] < least:
                        break

    def ended(self, job: Job, cluster: Cluster) -> None:
        """Nothing is noted."""


class Fifo:
    """Nobody starts before who came earlier."""

    def decide(self, cluster: Cluster) -> None:
        while cluster.queue:
            job = next(iter(cluster.queue.values()))
            host = best_fit(cluster.free, job.devices)
            if host is None:
                return
            cluster.start(job, host)

    def ended(self, job: Job, cluster: Cluster) -> None:
        """Nothing is noted."""


class Easy:
    """First come, first served, but others start meanwhile if, by their limits, they do not delay the first."""

    def decide(self, cluster: Cluster) -> None:
        Fifo().decide(cluster)
        if not cluster.queue or not any(cluster.free):
            return
        line = iter([*cluster.queue.values()])
        first = next(line)
        kept, at, extra = self._reservation(cluster, first)
        for job in line:
            free = [*cluster.free]
            if cluster.now + round(job.trace.limit * US) > at:
                free[kept] = min(free[kept], extra)
            host = best_fit(free, job.devices)
            if host is None:
                continue
            cluster.start(job, host)
            if host == kept and cluster.now + round(job.trace.limit * US) > at:
                extra -= job.devices
            if not any(cluster.free):
                return

    def ended(self, job: Job, cluster: Cluster) -> None:
        """Nothing is noted."""

    def _reservation(self, cluster: Cluster, first: Job) -> tuple[int, int, int]:
        """Returns the host and the time at which the job can start, and the devices that it leaves there."""
        best: tuple[int, int, int] | None = None
        for host, size in enumerate(cluster.sizes):
            if size < first.devices:
                continue
            ends = sorted(
                (max(cluster.now, job.started + round(job.trace.limit * US)), job.devices)
                for job in cluster.running.values()
                if job.host == host
            )
            free, at = cluster.free[host], cluster.now
            for end, devices in ends:
                if free >= first.devices and end > at:
                    break
                at, free = end, free + devices
            if best is None or at < best[0]:
                best = at, host, free - first.devices
        assert best is not None, "some host is large enough"
        return best[1], best[0], best[2]


def best_fit(free: list[int], devices: int) -> int | None:
    """Returns the host with the least free devices that are enough."""
    found = [(count, host) for host, count in enumerate(free) if count >= devices]
    return min(found)[1] if found else None
