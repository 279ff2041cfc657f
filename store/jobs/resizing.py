"""Gives a job that holds no devices another number of them."""

from typing import Any

from sqlalchemy import update
from sqlalchemy.orm import Session

from store.cluster import gpus, pools
from store.tables import Job
from store.team import quotas
from store.team.limits import find_limits
from torchyard.contract.errors import Conflict
from torchyard.contract.job import JobState
from torchyard.contract.spec import parse_spec


def with_devices(written: dict[str, Any], devices: int | None) -> dict[str, Any]:
    """Returns a stored spec that asks for so many devices of each node; None: for as many as before."""
    if devices is None:
        return written
    return {**written, "resources": {**written["resources"], "devices_per_node": devices}}


def said(before: int, devices: int | None) -> str:
    """Returns the end of an event's text, which tells the new number of devices. Empty if the number stays."""
    return "" if devices in (None, before) else f", with devices_per_node {devices} in place of {before}"


def resize(session: Session, job: Job, devices: int) -> bool:
    """Has the next attempt of a paused job ask for so many devices of each node. Returns whether that is a change.

    Raises Conflict for a job that is not paused, InvalidSpec if its pool has no such nodes, and QuotaExceeded.
    """
    if job.spec["resources"]["devices_per_node"] == devices:
        return False
    if job.state != JobState.PAUSED:
        raise Conflict(f"job {job.id} is {job.state}; its devices can be changed only while it is paused")
    spec = pools.resolved(session, parse_spec(with_devices(job.spec, devices)), job.owner)
    gpus.check(session, spec.resources)
    quotas.check_devices(job.owner, spec.resources.total_devices, find_limits(session, job.owner))
    session.execute(update(Job).where(Job.id == job.id).values(spec=with_devices(job.spec, devices)))
    session.refresh(job)
    return True
