"""Stops jobs: cancels, pauses and preempts them, and ends idle ones.

A job that runs is requested to stop, by columns that its worker reads; others change their state at once.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal

from sqlalchemy import bindparam, select, update
from sqlalchemy.orm import Session

from store.announcement import announcement_of
from store.attempts import prices
from store.attempts.facts import StopPrice, Wanted
from store.db.database import now_us
from store.jobs import events as job_events
from store.jobs import jobs
from store.jobs.facts import AT_ONCE
from store.queue.line.entries import is_in_line
from store.tables import Attempt, Job
from store.team import access
from store.team.callers import SERVICE, Caller
from torchyard.contract.attempts import idleness
from torchyard.contract.errors import Conflict, Forbidden
from torchyard.contract.queue.price import pause_asked, price_of_stop, saving
from torchyard.contract.states import CANCELLED_BY_OWNER, EndReason, JobState, Reason
from torchyard.contract.wire.units import format_duration

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
        return move_at_once(session, job_id, JobState.CANCELLED, caller, reason=reason, cancel_requested_at=now_us())
    requested_at = now_us() if job.cancel_requested_at is None else job.cancel_requested_at
    seconds = job.cancel_grace_s if grace is None else grace // timedelta(seconds=1)
    stopping = Reason("stopping", _say_cancel(grace))
    level = "info" if grace is None else "warning"
    tell_of_request(session, job, stopping.message, caller, level=level)
    return store_request(session, job, stopping, cancel_requested_at=requested_at, cancel_grace_s=seconds)


def check_stop(job: Job, action: Literal["cancel", "pause"]) -> None:
    """Raises Conflict if the job's state forbids the action. A job that was cancelled may be so again."""
    if action == "pause":
        refuse_ended(job, "paused")
    elif JobState(job.state).terminal and job.state != JobState.CANCELLED:
        raise Conflict(f"job {job.id} has already {job.state}, and cannot be cancelled")


def price_stop(
    session: Session, action: Literal["cancel", "pause"], job_id: str, *, caller: Caller, now: bool = False
) -> StopPrice | None:
    """Returns the price of a cancel or a pause; None of a job that does not run. `now`: the cancel kills.

    Raises NotFound, Forbidden and Conflict as the action does.
    """
    access.check_own(session, job_id, caller, ending=now)
    if now and not access.is_readable(session, job_id, caller):
        raise Forbidden(f"you may not read job {job_id}: `POST /v1/jobs/actions` with its id tells the price")
    check_stop(jobs.require(session, job_id), action)
    return next(iter(prices.price_jobs(session, [job_id], now=now)), None)


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
        return store_request(session, job, Reason("paused", "paused by its owner"), pause_requested_at=now_us())
    if state not in _OPEN:
        reason = Reason("paused", "paused by its owner")
        return move_at_once(session, job_id, JobState.PAUSED, caller, reason=reason, pause_requested_at=now_us())
    by = saving(job.trainer, job.spec.get("mode"))
    stopping = Reason("stopping", pause_asked(by))
    tell_of_request(session, job, stopping.message, caller)
    return store_request(session, job, stopping, pause_requested_at=now_us())


def request_preempt(session: Session, victims: Sequence[str], *, preemptor: str) -> bool:
    """Requests all `victims` to save a checkpoint and requeue, so that the queued job `preemptor` can start.

    Returns False, without any request, if one of the jobs has changed state, or others are being preempted already.
    """
    # Always in one order: two schedulers that wait for each other's rows would deadlock.
    locked = {job_id: jobs.lock(session, job_id) for job_id in sorted({*victims, preemptor})}
    waiting, running = locked[preemptor], [locked[job_id] for job_id in victims]
    if waiting is None or not is_in_line(waiting):
        return False
    if session.scalar(select(Job.id).where(Job.state.in_(_OPEN), Job.preempted_for == preemptor).limit(1)):
        return False
    guests = set(session.scalars(_GUESTS, {"victims": [*victims]}))
    if not all(job is not None and _may_be_preempted(job, waiting, is_guest=job.id in guests) for job in running):
        return False
    by = preempted_by(waiting.owner, waiting.priority)
    asked = {one.job_id: price_of_stop(one.stake, one.saving) for one in prices.price_jobs(session, victims)}
    for job in running:
        assert job is not None
        stopping = Reason("stopping", f"{by}: {asked.get(job.id, 'not running yet')}")
        tell_of_request(session, job, stopping.message, SERVICE)
        store_request(session, job, stopping, preempt_requested_at=now_us(), preempted_for=preemptor)
    return True


def request_idle_stop(session: Session, job: Job, *, timeout: timedelta) -> None:
    """Requests a running job, which is locked, to save a checkpoint and end: it has not used its GPUs for so long.

    The request stands if the job uses them again before it has stopped.
    """
    message = f"{idle_for(job, timeout)}: may save a checkpoint before it stops"
    tell_of_request(session, job, message, SERVICE, level="warning")
    seconds = timeout // timedelta(seconds=1)
    store_request(session, job, Reason("stopping", message), idle_requested_at=now_us(), idle_timeout_s=seconds)


def idle_for(job: Job, timeout: timedelta) -> str:
    """Returns why a job was stopped that has not used its GPUs for so long."""
    return idleness.stopped(devices=len(job.devices), timeout=timeout)


def preempted_by(owner: str, priority: int) -> str:
    """Returns what a preempted job says of the other. It may be another user's private job, so it is not named."""
    return f"preempted by a job of {owner} (priority {priority})"


def refuse_ended(job: Job, what: str) -> None:
    """Raises Conflict for a job that has ended or is being cancelled. `what`: what cannot be done with it."""
    if JobState(job.state).terminal:
        raise Conflict(f"job {job.id} has already {job.state}, and cannot be {what}")
    if job.cancel_requested_at is not None:
        raise Conflict(f"job {job.id} is being cancelled, and cannot be {what}")


def move_at_once(
    session: Session, job_id: str, target: JobState, caller: Caller, *, reason: Reason, **values: Any
) -> Job:
    """Moves a job that no worker runs, which is locked, and returns it."""
    moved = jobs.transition(session, job_id, target, reason=reason, detail=_detail_of(caller), **values)
    assert moved is not None, f"job {job_id} is locked, but has changed state"
    return moved


def tell_of_request(session: Session, job: Job, text: str, caller: Caller, *, level: str = "info") -> None:
    """Adds to the events what was asked of the open attempt, which changes the job's state only later."""
    data = {"level": level, "text": text} | _detail_of(caller)
    job_events.append(session, job.id, type="message", attempt=job.attempt, data=data)


def store_request(session: Session, job: Job, reason: Reason, **values: object) -> Job:
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


def _say_cancel(grace: timedelta | None) -> str:
    """Returns what the events say of the cancel of a running job."""
    if grace is None:
        return "cancel requested: may save a checkpoint before it stops"
    if not grace:
        return "forced cancel requested: killed without saving"
    return f"cancel requested: killed after at most {format_duration(grace)}"


def _detail_of(caller: Caller) -> dict[str, Any]:
    """Returns what an event says of who asked for it: nothing of the service itself."""
    return {} if caller == SERVICE else {"by": caller.name}
