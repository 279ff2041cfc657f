"""Requests to a job: cancel, pause, resume, preempt, stop as idle. They are columns that a worker reads, not states."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal

from sqlalchemy import bindparam, select, update
from sqlalchemy.orm import Session

from store.announcement import announcement_of
from store.attempts import prices
from store.attempts.facts import Wanted
from store.db.database import now_us
from store.jobs import dependencies, jobs, resizing
from store.jobs import events as job_events
from store.jobs.facts import AT_ONCE, WAITING
from store.queue.line.entries import is_in_line
from store.tables import HELD, Attempt, Job
from store.team import access, quotas
from store.team.callers import SERVICE, Caller
from torchyard.contract import idleness
from torchyard.contract.durations import format_duration
from torchyard.contract.errors import Conflict
from torchyard.contract.job import AT_RUNG, CANCELLED_BY_OWNER, EndReason, JobState, Reason
from torchyard.contract.pausing import PausePoint
from torchyard.contract.price import pause_asked, saving, stop_asked

_OPEN = (JobState.STARTING, JobState.RUNNING)
_GUESTS = select(Attempt.job_id).where(
    Attempt.job_id.in_(bindparam("victims", expanding=True)), Attempt.ended_at.is_(None), Attempt.guest
)


def requested_stop(job: Job) -> EndReason | None:
    """Returns the stop requested of the job's open attempt; None without any.

    A cancel overrides a pause, as both are the owner's word; a pause overrides the stop of an idle job, which would
    end it; and that a preemption, after which the job would come back to be idle again.
    """
    if job.cancel_requested_at is not None:
        return EndReason.CANCELLED
    if job.pause_requested_at is not None:
        return EndReason.PAUSED
    if job.idle_requested_at is not None:
        return EndReason.IDLE_TIMEOUT
    return EndReason.PREEMPTED if job.preempt_requested_at is not None else None


def wanted_of(attempt: Attempt, job: Job) -> Wanted:
    """Returns what is wanted of the job's open attempt."""
    return Wanted(requested_stop(job), cancel_grace(job), attempt.stacks_requested_at)


def cancel_grace(job: Job) -> timedelta | None:
    """Returns the longest grace of the requested cancel, if it is not just that of the job's spec."""
    return None if job.cancel_grace_s is None else timedelta(seconds=job.cancel_grace_s)


def request_cancel(session: Session, job_id: str, caller: Caller = SERVICE, *, grace: timedelta | None = None) -> Job:
    """Cancels a job that no worker runs; requests a running job to stop. Repeating it changes nothing.

    `grace`: the most that the stop may take, in whole seconds, if less than the job's `stop_grace`. A later request may
    shorten it. Raises NotFound, Forbidden, and Conflict for a job that has ended in another state.
    """
    job = access.lock(session, job_id, caller, ending=grace == AT_ONCE)
    state = JobState(job.state)
    if state is JobState.CANCELLED or (not state.terminal and _is_cancelled_within(job, grace)):
        return job
    check_stop(job, "cancel")
    if state not in _OPEN:
        reason = Reason("cancelled", cancelled_by(session, job))
        return _move(session, job_id, JobState.CANCELLED, caller, reason=reason, cancel_requested_at=now_us())
    requested_at = now_us() if job.cancel_requested_at is None else job.cancel_requested_at
    seconds = job.cancel_grace_s if grace is None else grace // timedelta(seconds=1)
    stopping = Reason("stopping", _of_cancel(grace))
    level = "info" if grace is None else "warning"
    _tell(session, job, stopping.message, caller, level=level)
    return _store_request(session, job, stopping, cancel_requested_at=requested_at, cancel_grace_s=seconds)


def check_stop(job: Job, action: Literal["cancel", "pause"]) -> None:
    """Raises Conflict if the job's state forbids the action. A job that was cancelled may be so again."""
    if action == "pause":
        _refuse_ended(job, "paused")
    elif JobState(job.state).terminal and job.state != JobState.CANCELLED:
        raise Conflict(f"job {job.id} has already {job.state}; only a job that has not ended can be cancelled")


def cancelled_by(session: Session, job: Job) -> str:
    """Returns who has cancelled the job, which is locked: its owner, or the run of its schedule that replaced it."""
    if job.schedule_id is None or job.due_at is None:
        return CANCELLED_BY_OWNER
    # A run is cancelled for its schedule only after the next one was submitted.
    newer = select(Job.id).where(Job.schedule_id == job.schedule_id, Job.due_at > job.due_at)
    if job.cancel_requested_at is not None:
        newer = newer.where(Job.created_at <= job.cancel_requested_at)
    return CANCELLED_BY_OWNER if session.scalar(newer.limit(1)) is None else "replaced by the next run of its schedule"


def request_pause(session: Session, job_id: str, caller: Caller = SERVICE) -> Job:
    """Pauses a waiting job; requests a running job to save a checkpoint and stop. Repeating it changes nothing.

    Raises NotFound, Forbidden, and Conflict for a job that has ended or is being cancelled.
    """
    job = access.lock(session, job_id, caller)
    state = JobState(job.state)
    check_stop(job, "pause")
    if job.pause_requested_at is not None:
        return job
    if state is JobState.PAUSED:  # by itself: it is not promoted any more
        return _store_request(session, job, Reason("paused", "paused by its owner"), pause_requested_at=now_us())
    if state not in _OPEN:
        reason = Reason("paused", "paused by its owner")
        return _move(session, job_id, JobState.PAUSED, caller, reason=reason, pause_requested_at=now_us())
    by = saving(job.trainer, job.spec.get("mode"))
    stopping = Reason("stopping", pause_asked(by))
    _tell(session, job, stopping.message, caller)
    return _store_request(session, job, stopping, pause_requested_at=now_us())


def resume(session: Session, job_id: str, caller: Caller = SERVICE, *, devices: int | None = None) -> Job:
    """Queues a paused job and withdraws the request of a pausing one. A job that nobody paused stays as it is.

    One that has paused by itself goes on to its end. A withdrawn pause that comes too late queues the job after it has
    stopped. Raises NotFound, Forbidden, and Conflict for a job that has ended or is being cancelled. A paused one gets
    a new attempt, with limits of its own of what it stores, so this raises QuotaExceeded if its owner has stored too
    much. `devices`: of each node, in place of those in the spec; raises what `resizing.resize` does.
    """
    job = access.lock(session, job_id, caller)
    _resize(session, job, devices, caller)
    state = JobState(job.state)
    if state is JobState.PAUSED:
        quotas.check_stored(session, job.owner, quotas.limits_of(session, job.owner))
        held = dependencies.is_held_again(job)  # until the controller has seen what it waits for
        reason = dependencies.waiting_again(session, job) if held else WAITING
        values: dict[str, Any] = {"pause_requested_at": None, "not_before": HELD if held else None}
        if job.reason_code == AT_RUNG:
            values["pause_at"] = None
        if held:
            announcement_of(session).wake_controller()
        return _move(session, job_id, JobState.QUEUED, caller, reason=reason, **values)
    _refuse_ended(job, "resumed")
    if job.pause_requested_at is None:
        return job
    running_on = _without_pause(job)
    _tell(session, job, running_on.message, caller)
    return _store_request(session, job, running_on, pause_requested_at=None)


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


def request_preempt(session: Session, victims: Sequence[str], *, preemptor: str) -> bool:
    """Requests all `victims` to save a checkpoint and requeue, so that the queued job `preemptor` can start.

    Returns False, without any request, if one of the jobs has changed state, or others are being preempted already.
    """
    # Always in one order: two schedulers that wait for each other's rows would deadlock.
    locked = {job_id: jobs.lock(session, job_id) for job_id in sorted({*victims, preemptor})}
    waiting, found = locked[preemptor], [locked[job_id] for job_id in victims]
    if waiting is None or not is_in_line(waiting):
        return False
    if session.scalar(select(Job.id).where(Job.state.in_(_OPEN), Job.preempted_for == preemptor).limit(1)):
        return False
    guests = set(session.scalars(_GUESTS, {"victims": [*victims]}))
    if not all(job is not None and _may_be_preempted(job, waiting, is_guest=job.id in guests) for job in found):
        return False
    by = preempted_by(waiting.owner, waiting.priority)
    told = {one.job_id: stop_asked(one.stake, one.saving) for one in prices.of_jobs(session, victims)}
    for job in found:
        assert job is not None
        stopping = Reason("stopping", f"{by}: {told.get(job.id, 'it does not run yet')}")
        _tell(session, job, stopping.message, SERVICE)
        _store_request(session, job, stopping, preempt_requested_at=now_us(), preempted_for=preemptor)
    return True


def request_idle_stop(session: Session, job: Job, *, timeout: timedelta) -> None:
    """Requests a running job, which is locked, to save a checkpoint and end: it has not used its GPUs for so long.

    The request stands if the job uses them again before it has stopped.
    """
    message = f"{idle_for(job, timeout)}: the job may save a checkpoint before it stops"
    _tell(session, job, message, SERVICE, level="warning")
    seconds = timeout // timedelta(seconds=1)
    _store_request(session, job, Reason("stopping", message), idle_requested_at=now_us(), idle_timeout_s=seconds)


def idle_for(job: Job, timeout: timedelta) -> str:
    """Returns why a job was stopped that has not used its GPUs for so long."""
    return idleness.stopped(devices=len(job.devices), timeout=timeout)


def preempted_by(owner: str, priority: int) -> str:
    """Returns what a preempted job says of the other. It may be another user's private job, so it is not named."""
    return f"preempted by a job of {owner} (priority {priority})"


def _without_pause(job: Job) -> Reason:
    """Returns the reason of a job with an open attempt whose pause is withdrawn before it took effect."""
    if job.idle_requested_at is not None:
        return Reason("stopping", "the pause was withdrawn, but the job is stopped, as it did not use its GPUs")
    return Reason(job.state, "the pause was withdrawn before it took effect")


def _may_be_preempted(job: Job, preemptor: Job, *, is_guest: bool) -> bool:
    return (
        job.state in _OPEN
        and (is_guest or job.priority <= preemptor.priority)
        and requested_stop(job) is None
        and job.stored_spec.preemptible
    )


def _is_cancelled_within(job: Job, grace: timedelta | None) -> bool:
    if job.cancel_requested_at is None:
        return False
    known = cancel_grace(job)
    return grace is None or (known is not None and known <= grace)


def _of_cancel(grace: timedelta | None) -> str:
    """Returns what the owner is told of the cancel of a running job."""
    if grace is None:
        return "cancel requested: the job may save a checkpoint before it stops"
    if not grace:
        return "forced cancel requested: the job is killed, and may save nothing more"
    return f"cancel requested: the job is killed after {format_duration(grace)} at most"


def _resize(session: Session, job: Job, devices: int | None, caller: Caller) -> None:
    before = job.spec["resources"]["devices_per_node"]
    if devices is not None and resizing.resize(session, job, devices):
        _tell(session, job, f"goes on{resizing.said(before, devices)}", caller)


def _refuse_ended(job: Job, what: str) -> None:
    if JobState(job.state).terminal:
        raise Conflict(f"job {job.id} has already {job.state}; only a job that has not ended can be {what}")
    if job.cancel_requested_at is not None:
        raise Conflict(f"job {job.id} is being cancelled, and cannot be {what}")


def _move(session: Session, job_id: str, target: JobState, caller: Caller, *, reason: Reason, **values: Any) -> Job:
    moved = jobs.transition(session, job_id, target, reason=reason, detail=_by(caller), **values)
    assert moved is not None, f"job {job_id} is locked, but has changed state"
    return moved


def _tell(session: Session, job: Job, text: str, caller: Caller, *, level: str = "info") -> None:
    """Adds to the events what was asked of the open attempt, which changes the job's state only later."""
    data = {"level": level, "text": text} | _by(caller)
    job_events.append(session, job.id, type="message", attempt=job.attempt, data=data)


def _by(caller: Caller) -> dict[str, Any]:
    """Returns what an event says of who asked for it: nothing of the service itself."""
    return {} if caller == SERVICE else {"by": caller.name}


def _store_request(session: Session, job: Job, reason: Reason, **values: object) -> Job:
    """Writes request columns and the reason, and wakes the workers."""
    session.execute(
        update(Job)
        .where(Job.id == job.id)
        .values(
            version=Job.version + 1,
            reason_code=reason.code,
            reason_message=reason.message,
            reason_since=now_us(),
            **values,
        )
    )
    session.refresh(job)
    jobs.announce(session, job)
    announcement_of(session).wake_workers()
    return job
