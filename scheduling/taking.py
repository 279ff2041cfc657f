"""What a walk gives to the jobs that start, and when it may."""

from collections.abc import Mapping
from dataclasses import dataclass

from scheduling.pools import Pool
from scheduling.quotas import Allowance
from scheduling.room import Room
from scheduling.snapshot import Device, Place, Placement, Reservation, Waiting
from scheduling.steps import Start


@dataclass(frozen=True)
class Taken:
    """The job gets devices of a host."""

    job: Waiting
    room: Room
    devices: list[Device]
    guest: bool


@dataclass(frozen=True)
class Given:
    """The pool's cluster gets the job."""

    job: Waiting
    pool: Pool


def start_of(step: Taken | Given, at: Mapping[Place, Reservation]) -> Start:
    """Returns the step of the plan. `at`: what is kept from then on."""
    if isinstance(step, Given):
        return Start(step.job, Placement(step.pool.id, ()), None)
    worker_id = step.room.host.id
    kept = at.get((worker_id, step.room.kind(step.job.resources)))
    return Start(step.job, Placement(worker_id, tuple(step.devices)), kept, step.guest)


def names_pool(job: Waiting) -> bool:
    return job.resources.pool is not None


def refusal(job: Waiting, allowances: Mapping[str, Allowance]) -> str | None:
    """Returns why the quota of its owner holds the job back; None if it does not."""
    allowance = allowances.get(job.owner)
    return None if allowance is None else allowance.refusal(job.resources.total_devices)
