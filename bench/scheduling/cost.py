"""Milliseconds of a plan and of a replay of 200 groups on 8 hosts of 8 devices: `python -m bench.scheduling.cost`."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
import time

from bench import table
from bench.table import Row
from scheduling.plan import plan
from scheduling.replay import replay
from scheduling.shapes import limit_class, looked
from scheduling.snapshot import Device, Host, OwnerUse, Running, Snapshot, Waiting
from torchyard.contract.spec.resources import Resources

CLUSTERS, REPEATS = 20, 5
REPLAYS, REPLAY_REPEATS = 5, 3
_HOSTS, _DEVICES, _GROUPS, _OWNERS = 8, 8, 200, 20
_HOUR = 3_600_000_000
_NOW = 1_700_000_000_000_000
_COUNTS = (1, 1, 1, 1, 2, 2, 4, 8)
_RESOURCES = {count: Resources(devices_per_node=count, device="cuda") for count in _COUNTS}


def measure() -> Iterator[Row]:
    for what, busy in (("full", 1.0), ("with a quarter free", 0.75), ("empty", 0.0)):
        times = [_milliseconds(_snapshot(Random(f"{what} {number}"), busy)) for number in range(CLUSTERS)]
        yield Row(f"a plan for {_GROUPS} groups on {_HOSTS} × {_DEVICES} devices, {what}", "ms", times, at_most=20)
    replays = [_replay(_snapshot(Random(f"full {number}"), 1.0)) for number in range(REPLAYS)]
    yield Row("a replay of these, full: its longest piece", "ms", [longest for longest, _ in replays], at_most=5)
    yield Row("a replay of these, full: all of it", "ms", [whole for _, whole in replays])


def _replay(snapshot: Snapshot) -> tuple[float, float]:
    """Returns the milliseconds of the longest piece of a replay and of all of it, the least of some repeats."""
    times = [_replay_once(snapshot) for _ in range(REPLAY_REPEATS)]
    return min(longest for longest, _ in times), min(whole for _, whole in times)


def _replay_once(snapshot: Snapshot) -> tuple[float, float]:
    longest, began = 0.0, time.process_time()
    at = began
    for _ in replay(snapshot):
        before, at = at, time.process_time()
        longest = max(longest, at - before)
    return longest * 1000, (time.process_time() - began) * 1000


def _milliseconds(snapshot: Snapshot) -> float:
    """Returns the least processor time of some repeats: what else runs on the machine only adds to it."""
    return min(_once(snapshot) for _ in range(REPEATS))


def _once(snapshot: Snapshot) -> float:
    # Jobs that are read anew have cached nothing of themselves.
    fresh = replace(snapshot, line=tuple(replace(job) for job in snapshot.line))
    began = time.process_time()
    plan(fresh)
    return (time.process_time() - began) * 1000


def _snapshot(random: Random, busy: float) -> Snapshot:
    """Returns a cluster where such a part of the devices is held, with what a plan before has kept."""
    running: list[Running] = []
    hosts = tuple(_host(random, number, busy, running) for number in range(_HOSTS))
    snapshot = Snapshot(
        now=_NOW,
        hosts=hosts,
        running=tuple(running),
        line=tuple(_waiting(random, number) for number in range(_GROUPS)),
        uses=tuple(OwnerUse(f"user-{number}", "cuda", random.uniform(0, 1e6)) for number in range(_OWNERS)),
    )
    return replace(snapshot, reservations=plan(snapshot).reservations)


def _host(random: Random, number: int, busy: float, running: list[Running]) -> Host:
    """Returns a host. Adds the jobs that run there."""
    holders: list[str | None] = []
    while len(holders) < _DEVICES:
        count = min(random.choice(_COUNTS), _DEVICES - len(holders))
        if random.random() < busy:
            job = _running(random, f"job_r{len(running):03}", f"wrk_{number}", count)
            running.append(job)
            holders += [job.job_id] * count
        else:
            holders.append(None)
    devices = (
        Device(index, f"GPU-{number}-{index}", "H100", "cuda", 80 << 30, holder) for index, holder in enumerate(holders)
    )
    return Host(f"wrk_{number}", f"host-{number}", tuple(devices))


def _running(random: Random, job_id: str, worker_id: str, count: int) -> Running:
    return Running(
        job_id=job_id,
        owner=_owner(random),
        priority=0,
        preemptible=random.random() < 0.7,
        since=_NOW - random.randint(1, 20) * _HOUR // 2,
        stopping=False,
        worker_id=worker_id,
        resources=Resources(devices_per_node=count, device="cuda"),
        submitted=_NOW - random.randint(20, 100) * _HOUR // 2,
        limit_us=random.choice((12, 24, 24, 48)) * _HOUR,
        waited_us=random.randint(0, 30) * _HOUR,
        fraction=random.uniform(0.05, 1) if random.random() < 0.85 else None,
        saved_at=_NOW,
    )


def _waiting(random: Random, number: int) -> Waiting:
    """Returns the only job of a group of its own."""
    count, preemptible = random.choice(_COUNTS), random.random() < 0.7
    limit, ran = random.choice((1, 2, 4, 8, 12, 24, 24, 48)) * _HOUR, random.choice((0, 0, _HOUR // 2))
    owner = _owner(random)
    return Waiting(
        id=f"job_w{number:03}",
        owner=owner,
        priority=random.choice((0, 0, 0, 1)),
        shape=f"{owner} {count} {preemptible} {limit_class(limit - ran)} {looked(ran)} {number}",
        resources=_RESOURCES[count],
        submitted=_NOW - random.randint(0, 40) * _HOUR // 2,
        limit_us=limit,
        preemptible=preemptible,
        ran_us=ran,
        waited_us=random.randint(0, 20) * _HOUR,
        usual_us=random.choice((None, _HOUR // 4, _HOUR, 5 * _HOUR)),
    )


def _owner(random: Random) -> str:
    return f"user-{random.randrange(_OWNERS)}"


if __name__ == "__main__":
    table.main(measure)
