"""What happens to a job when its attempt has ended."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from store.db.database import now_us
from store.jobs import jobs, stop
from store.tables import Job
from torchyard.contract.attempts.pausing import PausePoint
from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.errors import StaleClaim
from torchyard.contract.states import (
    AT_RUNG,
    CANCELLED_BY_OWNER,
    CRASH_LOOP_CAP,
    DID_NOT_USE_GPUS,
    OUTCOMES,
    EndReason,
    JobState,
    Reason,
)
from torchyard.contract.wire.text import headline

_MAX_BACKOFF_S = 60
_NO_FAILURE = {EndReason.PAUSED, EndReason.PREEMPTED}
"""Ends that do not count towards the crash-loop cap and need no backoff."""


def with_who_stopped(session: Session, job: Job, report: ExitReport) -> ExitReport:
    """Returns the report of an attempt with what its worker does not know: who has cancelled the job, or for how long
    it has not used its GPUs."""
    if report.reason is EndReason.CANCELLED:
        return replace(report, message=report.message.replace(CANCELLED_BY_OWNER, stop.cancelled_by(session, job)))
    if report.reason is EndReason.IDLE_TIMEOUT and job.idle_timeout_s is not None:
        why = stop.idle_for(job, timedelta(seconds=job.idle_timeout_s))
        return replace(report, message=report.message.replace(DID_NOT_USE_GPUS, why))
    return report


def apply(
    session: Session,
    job: Job,
    report: ExitReport,
    *,
    published_checkpoint: bool,
    made_progress: bool,
    ran_us: int,
    by_itself: bool = False,
) -> JobState:
    """Moves the job, which is locked, to its next state and returns it.

    Raises StaleClaim if the job has no open attempt.
    `published_checkpoint`: whether the attempt published a checkpoint of a later step than the one it started from.
    `made_progress`: whether an attempt of the job made some, or this one ended by no error of the program. Without it,
    the job fails.
    `by_itself`: whether the worker had not asked it to stop, so that a pause is that of the job's `pause_at`.
    """
    if report.reason is EndReason.PREEMPTED and job.preempted_for is not None:
        report = replace(report, message=_preempted_by(session, job.preempted_for))
    failed = report.reason not in _NO_FAILURE
    without = 0 if published_checkpoint else job.attempts_without_checkpoint + failed
    backoff_s = min(2 ** (without - 1), _MAX_BACKOFF_S) if without and failed else 0
    point = PausePoint.of(job.pause_at) if by_itself and job.pause_at is not None else None
    cancelled = None if job.cancel_requested_at is None else stop.cancelled_by(session, job)
    state, reason = _next_state(
        job,
        report,
        attempts_without_checkpoint=without,
        made_progress=made_progress,
        backoff_s=backoff_s,
        point=point,
        cancelled=cancelled,
    )
    retried = state in {JobState.QUEUED, JobState.PAUSED}
    error = report.to_dict()
    error["code"] = error.pop("reason")
    del error["may_retry"], error["exited_well"]
    values: dict[str, Any] = {
        "attempts_without_checkpoint": without,
        "restarts": job.restarts + (1 if retried and OUTCOMES[report.reason].counted else 0),
        "ran_us": job.ran_us + ran_us,
        "error": error if state is JobState.FAILED else None,
        "not_before": now_us() + backoff_s * 1_000_000 if state is JobState.QUEUED and backoff_s else None,
        "idle_requested_at": None,
        "idle_timeout_s": None,
        "preempt_requested_at": None,
        "preempted_for": None,
    }
    detail = {"error": error} if state in {JobState.FAILED, JobState.QUEUED} else None
    if jobs.transition(session, job.id, state, reason=reason, detail=detail, locked=job, **values) is None:
        raise StaleClaim(f"job {job.id} is neither starting nor running")
    return state


def _preempted_by(session: Session, preemptor: str) -> str:
    row = session.execute(select(Job.owner, Job.priority).where(Job.id == preemptor)).first()
    return "preempted by a job that was deleted since" if row is None else stop.preempted_by(*row)


def _next_state(
    job: Job,
    report: ExitReport,
    *,
    attempts_without_checkpoint: int,
    made_progress: bool,
    backoff_s: int,
    point: PausePoint | None,
    cancelled: str | None,
) -> tuple[JobState, Reason]:
    """Returns the next state with its reason. The job's row is locked, so its requests cannot change meanwhile.

    `point`: where the attempt was to pause, if it was not asked to stop. `cancelled`: who has cancelled it, if it is.
    """
    outcome = OUTCOMES[report.reason]
    code, message = str(report.reason), headline(report.message) or report.reason.replace("_", " ")
    if outcome.state.terminal:
        return outcome.state, Reason(code, message)
    if cancelled is not None:
        return JobState.CANCELLED, Reason("cancelled", f"{cancelled}; its last attempt ended: {message}")
    final = _why_final(job, report, attempts_without_checkpoint, made_progress=made_progress)
    if final is not None:
        return JobState.FAILED, Reason(code, message + final)
    if job.pause_requested_at is not None:
        return JobState.PAUSED, Reason("paused", f"paused by its owner; its last attempt ended: {message}")
    if report.reason is EndReason.PAUSED:
        return _paused(point)
    wait = f"; the next one starts in {backoff_s} s at the earliest" if backoff_s else ""
    return JobState.QUEUED, Reason("retrying", f"attempt {job.attempt} ended: {message}{wait}")


def _why_final(job: Job, report: ExitReport, attempts_without_checkpoint: int, *, made_progress: bool) -> str | None:
    """Returns what is said behind the message of a failure that is not retried; None if it is."""
    if not report.may_retry:
        return ""
    limit = job.stored_spec.max_restarts
    if OUTCOMES[report.reason].counted and job.restarts >= limit:
        return f" (after {job.restarts} of {limit} restarts)" if limit else ""
    if not made_progress:
        return " (not retried: it failed before its first step, metric or checkpoint)"
    if attempts_without_checkpoint >= CRASH_LOOP_CAP:
        return f" ({attempts_without_checkpoint} attempts in a row saved no newer checkpoint)"
    return None


def _paused(point: PausePoint | None) -> tuple[JobState, Reason]:
    """Returns the next state after a pause that the owner does not want any more, or has never asked for."""
    if point is None:
        return JobState.QUEUED, Reason("resumed", "resumed before the pause took effect")
    return JobState.PAUSED, Reason(AT_RUNG, f"waits for promotion after {point}")
