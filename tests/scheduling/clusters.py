"""Small clusters, for examples of the rules."""

from collections.abc import Sequence
from typing import Any

from scheduling.plan import plan
from scheduling.snapshot import Device, Host, Reservation, Running, Snapshot, Waiting
from scheduling.steps import Plan
from torchyard.contract.spec.resources import Resources

NOW = 1_700_000_000_000_000
MINUTE = 60_000_000
HOUR = 60 * MINUTE
HERE, THERE = "wrk_here", "wrk_there"
_GIB = 1 << 30


def slots(*holders: str | None) -> tuple[Device, ...]:
    """Returns CPU slots, each with the job that holds it."""
    return tuple(Device(index, f"cpu-{index}", "slot", "cpu", job_id=job) for index, job in enumerate(holders))


def gpu(
    index: int, *, job: str | None = None, memory: int = 80, name: str = "NVIDIA H200", blocked: str | None = None
) -> Device:
    return Device(index, f"GPU-{index}", name, "cuda", memory * _GIB, job, blocked)


def host(devices: Sequence[Device], name: str = "here", **others: Any) -> Host:
    return Host(f"wrk_{name}", name, tuple(devices), **others)


def waits(job_id: str, count: int = 1, *, owner: str = "ada", **others: Any) -> Waiting:
    """Returns a job that was submitted an hour ago. It has run before, so it has no first look any more."""
    given: dict[str, Any] = {
        "priority": 0,
        "submitted": NOW - HOUR,
        "limit_us": 24 * HOUR,
        "ran_us": HOUR,
        "resources": Resources(devices_per_node=count),
        **others,
    }
    return Waiting(id=job_id, owner=owner, shape=f"{owner}/{count}/{given['limit_us']}/{given['ran_us']}", **given)


def runs(job_id: str, count: int = 1, *, owner: str = "bob", on: str = HERE, **others: Any) -> Running:
    """Returns a job that started an hour ago and may run 24 hours in all."""
    given: dict[str, Any] = {
        "priority": 0,
        "preemptible": False,
        "since": NOW - HOUR,
        "stopping": False,
        "submitted": NOW - HOUR,
        "limit_us": 24 * HOUR,
        "resources": Resources(devices_per_node=count),
        **others,
    }
    return Running(job_id=job_id, owner=owner, worker_id=on, **given)


def seen(*line: Waiting, hosts: Sequence[Host], running: Sequence[Running] = (), **others: Any) -> Snapshot:
    return Snapshot(now=NOW, hosts=tuple(hosts), running=tuple(running), line=line, **others)


def starts(snapshot: Snapshot) -> dict[str, list[str]]:
    """Returns the devices that each job gets."""
    return {start.job.id: [device.uuid for device in start.placement.devices] for start in plan(snapshot).starts}


def kept(planned: Plan) -> dict[str, Reservation]:
    """Returns the reservations by job."""
    return {one.job_id: one for one in planned.reservations}


def stopped(planned: Plan) -> dict[str, str]:
    """Returns for which job each victim stops."""
    return {one.victim: stop.job.id for stop in planned.stops for one in stop.displacements}
