"""Resumes jobs that are paused, or that are asked to pause, and gives them other numbers of devices."""

from typing import Any

from sqlalchemy import update
from sqlalchemy.orm import Session

from store.announcement import announcement_of
from store.cluster import pools, requested
from store.jobs import dependencies, stop
from store.jobs.facts import WAITING
from store.tables import HELD, Job
from store.team import access, quotas
from store.team.callers import SERVICE, Caller
from store.team.limits import find_limits
from torchyard.contract.attempts.pausing import PausePoint
from torchyard.contract.errors import Conflict
from torchyard.contract.spec.spec import parse_spec
from torchyard.contract.states import AT_RUNG, JobState, Reason


def resume(session: Session, job_id: str, caller: Caller = SERVICE, *, devices: int | None = None) -> Job:
    """Queues a paused job and withdraws the request of a pausing one. A job that nobody paused stays as it is.

    One that has paused by itself goes on to its end. A withdrawn pause that comes too late queues the job after it has
    stopped. Raises NotFound, Forbidden, and Conflict for a job that has ended or is being cancelled. A paused one gets
    a new attempt, with limits of its own of what it stores, so this raises QuotaExceeded if its owner has stored too
    much. `devices`: of each node, in place of those in the spec; raises InvalidSpec if its pool has no such nodes.
    """
    job = access.lock(session, job_id, caller)
    _resize(session, job, devices, caller)
    state = JobState(job.state)
    if state is JobState.PAUSED:
        quotas.check_stored(session, job.owner, find_limits(session, job.owner))
        held = dependencies.is_held_again(job)  # until the controller has seen what it waits for
        reason = dependencies.waiting_again(session, job) if held else WAITING
        values: dict[str, Any] = {"pause_requested_at": None, "not_before": HELD if held else None}
        if job.reason_code == AT_RUNG:
            values["pause_at"] = None
        if held:
            announcement_of(session).wake_controller()
        return stop.move_at_once(session, job_id, JobState.QUEUED, caller, reason=reason, **values)
    stop.refuse_ended(job, "resumed")
    if job.pause_requested_at is None:
        return job
    running_on = _without_pause(job)
    stop.tell_of_request(session, job, running_on.message, caller)
    return stop.store_request(session, job, running_on, pause_requested_at=None)


def promote(session: Session, job_id: str, point: PausePoint | None, caller: Caller = SERVICE) -> bool:
    """Queues a job that has paused by itself, to pause at a later point, or to go on to its end.

    Returns False if it does not wait for that, any more. Raises what `resume` raises.
    """
    job = access.lock(session, job_id, caller)
    if job.state != JobState.PAUSED or job.reason_code != AT_RUNG or job.pause_at is None:
        return False
    if point is not None and point.number <= PausePoint.of(job.pause_at).number:
        return False  # another one has promoted it to there already
    resume(session, job_id, caller)
    session.execute(update(Job).where(Job.id == job_id).values(pause_at=None if point is None else point.document))
    return True


def with_devices(written: dict[str, Any], devices: int | None) -> dict[str, Any]:
    """Returns a stored spec that asks for so many devices of each node; None: for as many as before."""
    if devices is None:
        return written
    return {**written, "resources": {**written["resources"], "devices_per_node": devices}}


def say_devices(before: int, devices: int | None) -> str:
    """Returns the end of an event's text, which tells the new number of devices. Empty if the number stays."""
    return "" if devices in (None, before) else f", with devices_per_node {devices} in place of {before}"


def _resize(session: Session, job: Job, devices: int | None, caller: Caller) -> None:
    before = job.spec["resources"]["devices_per_node"]
    if devices is not None and _set_devices(session, job, devices):
        stop.tell_of_request(session, job, f"resumed{say_devices(before, devices)}", caller)


def _set_devices(session: Session, job: Job, devices: int) -> bool:
    """Has the next attempt of a paused job ask for so many devices of each node. Returns whether that is a change.

    Raises Conflict for a job that is not paused, InvalidSpec if its pool has no such nodes, and QuotaExceeded.
    """
    if job.spec["resources"]["devices_per_node"] == devices:
        return False
    if job.state != JobState.PAUSED:
        raise Conflict(f"job {job.id} is {job.state}; its devices can be changed only while it is paused")
    spec = pools.resolved(session, parse_spec(with_devices(job.spec, devices)), job.owner)
    requested.check(session, spec.resources)
    quotas.check_devices(job.owner, spec.resources.total_devices, find_limits(session, job.owner))
    session.execute(update(Job).where(Job.id == job.id).values(spec=with_devices(job.spec, devices)))
    session.refresh(job)
    return True


def _without_pause(job: Job) -> Reason:
    """Returns the reason of a job with an open attempt whose pause is withdrawn before it took effect."""
    if job.idle_requested_at is not None:
        return Reason("stopping", "the pause was withdrawn; the job still stops: it did not use its GPUs")
    return Reason(job.state, "the pause was withdrawn before it took effect")
