"""Snapshots of worlds, without a database."""

from scheduling.plan import Plan
from scheduling.quotas import Allowance
from scheduling.snapshot import OVERDUE_AFTER, Device, Host, Reservation, Running, Snapshot, Waiting
from tests.scheduling.outcomes import Outcome
from tests.scheduling.worlds import World, WorldHost
from torchyard.contract.spec import Resources

NOW = 1_700_000_000_000_000
_GRACE_S = 30


def snapshot_of(world: World) -> Snapshot:
    """Returns all that a worker could read of the world: each job of the line, not just the first ones."""
    waiting = [
        Waiting(
            id=waiting_id(number),
            priority=job.priority,
            shape=f"{job.owner}/{job.count}/{job.device}/{job.min_memory_gb}",
            resources=Resources.model_validate(
                {"devices_per_node": job.count, "device": job.device, "min_memory_gb": job.min_memory_gb}
            ),
            owner=job.owner,
        )
        for number, job in enumerate(world.waiting)
    ]
    return Snapshot(
        here=_worker_id(world.here),
        now=NOW,
        hosts=tuple(_host(world, index, host) for index, host in enumerate(world.hosts) if not host.lost),
        running=_running(world),
        line=tuple(job for job, given in zip(waiting, world.waiting, strict=True) if not given.held_back),
        reservations=_reservations(world),
        allowances=_allowances(world),
    )


def outcome_of(plan: Plan, snapshot: Snapshot) -> Outcome:
    """Returns the plan in the form of the recorded outcomes."""
    done = [step.job for step in plan.starts]
    reasons = [(job, plan.reasons.of(job)) for job in snapshot.line if job not in done]
    return Outcome(
        starts=[(_number(step.job.id), [device.uuid for device in step.placement.devices]) for step in plan.starts],
        stops=sorted((_number(one.victim), _number(stop.job.id)) for stop in plan.stops for one in stop.reservations),
        reasons={_number(job.id): (reason.code, reason.message) for job, reason in reasons if reason is not None},
    )


def waiting_id(number: int) -> str:
    return f"job_b{number:03}"


def _running_id(number: int) -> str:
    return f"job_a{number:03}"


def _worker_id(index: int) -> str:
    return f"wrk_{index}"


def _number(job_id: str) -> int:
    return int(job_id[-3:])


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


def _running(world: World) -> tuple[Running, ...]:
    asked = {stop.victim for stop in world.preemptions}
    return tuple(
        Running(
            job_id=_running_id(number),
            owner=job.owner,
            priority=job.priority,
            preemptible=job.preemptible,
            since=number,
            stopping=job.stop is not None or number in asked,
            worker_id=_worker_id(job.host),
        )
        for number, job in enumerate(world.running)
    )


def _reservations(world: World) -> tuple[Reservation, ...]:
    bound_s = _GRACE_S + OVERDUE_AFTER.total_seconds()
    return tuple(
        Reservation(
            job_id=waiting_id(stop.preemptor),
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
