"""Snapshots of worlds, with times by the world's own random choices."""

from random import Random

from scheduling.quotas import Allowance
from scheduling.shapes import limit_class, looked
from scheduling.snapshot import OVERDUE_AFTER, Device, Displacement, Host, OwnerUse, Running, Snapshot, Waiting
from tests.scheduling.clusters import HOUR, NOW
from tests.scheduling.worlds import OWNERS, World, WorldHost, WorldWaiting
from torchyard.contract.spec.resources import Resources

_GRACE_S = 30


def snapshot_of(world: World, random: Random) -> Snapshot:
    """Returns all that a worker could read of the world: each job of the line, not just the first ones."""
    waiting = [_waiting(number, job, random) for number, job in enumerate(world.waiting)]
    return Snapshot(
        now=NOW,
        hosts=tuple(_host(world, index, host) for index, host in enumerate(world.hosts) if not host.lost),
        running=_running(world, random),
        line=tuple(job for job, given in zip(waiting, world.waiting, strict=True) if not given.held_back),
        displacements=_displacements(world),
        allowances=_allowances(world),
        uses=tuple(
            OwnerUse(owner, kind, random.choice((0.0, 1e4, 1e6)), random.choice((50, 100)))
            for owner in OWNERS
            for kind in ("cpu", "cuda")
        ),
    )


def _waiting(number: int, job: WorldWaiting, random: Random) -> Waiting:
    ran, limit = random.choice((0, HOUR)), random.choice((1, 5, 24)) * HOUR
    preemptible, left = random.random() < 0.5, limit_class(limit - ran)
    return Waiting(
        id=f"job_b{number:03}",
        owner=job.owner,
        priority=job.priority,
        shape=f"{job.owner}/{job.count}/{job.device}/{job.min_memory_gb}/{preemptible}/{left}/{looked(ran)}",
        resources=Resources.model_validate(
            {"devices_per_node": job.count, "device": job.device, "min_memory_gb": job.min_memory_gb}
        ),
        submitted=NOW - (1000 - number) * HOUR // 10,
        limit_us=limit,
        preemptible=preemptible,
        ran_us=ran,
        waited_us=random.choice((0, HOUR, 13 * HOUR)),
        # Jobs of one shape do not tell different things here: the first one stands for them.
        usual_us=HOUR // 2 if job.owner == OWNERS[0] else None,
    )


def _running_id(number: int) -> str:
    return f"job_a{number:03}"


def _worker_id(index: int) -> str:
    return f"wrk_{index}"


def _host(world: World, index: int, host: WorldHost) -> Host:
    holders = {
        uuid: _running_id(number)
        for number, job in enumerate(world.running)
        if job.host == index
        for uuid in job.devices
    }
    seen = [
        Device(
            index=device.index,
            uuid=device.uuid,
            name=device.name,
            kind=device.kind,
            memory_bytes=device.memory_bytes,
            blocked=device.blocked,
            returning=device.returning,
        )
        for device in host.devices
    ]
    devices = tuple(device.held_by(holders[device.uuid]) if device.uuid in holders else device for device in seen)
    return Host(_worker_id(index), host.name, devices, host.draining)


def _running(world: World, random: Random) -> tuple[Running, ...]:
    asked = {stop.victim for stop in world.preemptions}
    return tuple(
        Running(
            job_id=_running_id(number),
            owner=job.owner,
            priority=job.priority,
            preemptible=job.preemptible,
            since=NOW - random.choice((1, 2, 9)) * HOUR,
            stopping=job.stop is not None or number in asked,
            worker_id=_worker_id(job.host),
            resources=Resources(devices_per_node=len(job.devices)),
            submitted=NOW - random.choice((1, 90, 200)) * HOUR,
            limit_us=24 * HOUR,
            waited_us=random.choice((0, 30)) * HOUR,
            fraction=random.choice((None, 0.0, 0.5, 1.0, 3.0, float("nan"))),
            saved_at=random.choice((None, NOW - HOUR // 2)),
            guest=random.random() < 0.2,
        )
        for number, job in enumerate(world.running)
    )


def _displacements(world: World) -> tuple[Displacement, ...]:
    bound_s = _GRACE_S + OVERDUE_AFTER.total_seconds()
    return tuple(
        Displacement(
            job_id=f"job_b{stop.preemptor:03}",
            owner=world.waiting[stop.preemptor].owner,
            victim=_running_id(stop.victim),
            victim_owner=(victim := world.running[stop.victim]).owner,
            worker_id=_worker_id(victim.host),
            worker=world.hosts[victim.host].name,
            until=NOW + int(bound_s - stop.ago_s) * 1_000_000,
        )
        for stop in world.preemptions
    )


def _allowances(world: World) -> dict[str, Allowance]:
    held = {
        owner: [len(job.devices) for job in world.running if job.owner == owner]
        for owner, limits in world.quotas.items()
        if limits
    }
    return {
        owner: Allowance(
            owner,
            world.quotas[owner].get("devices"),
            world.quotas[owner].get("running"),
            held=sum(counts),
            runs=len(counts),
        )
        for owner, counts in held.items()
    }
