"""Verifies exit reports. A job may be able to write to the file of its report."""

from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta

from sqlalchemy.orm import Session

from store.jobs.stop import requested_stop
from store.tables import Attempt, Job, Worker
from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.states import DID_NOT_USE_GPUS, OUTCOMES, EndReason, JobState
from torchyard.contract.wire.text import headline

_STOPS = {EndReason.CANCELLED, EndReason.PAUSED, EndReason.PREEMPTED, EndReason.IDLE_TIMEOUT}
_MICROSECOND = timedelta(microseconds=1)


def verified(
    session: Session,
    attempt: Attempt,
    job: Job,
    report: ExitReport,
    *,
    requested_stops: Collection[EndReason],
    ran_us: int,
) -> ExitReport:
    """Returns the report, corrected where the rows do not support it.

    A stop that nobody requested becomes `worker_lost`, but for a preemption in a pool, whose cluster may preempt, and
    for the pause of a job with `pause_at`. An end that a retry would follow becomes `idle_timeout` if the job was asked
    to stop as idle; that itself becomes `paused` if its owner wants that; and a failure `time_limit` if the job's time
    is used up. `requested_stops` are the stops that the worker has requested, besides those in the rows; `ran_us` are
    the microseconds that the attempt ran.
    """
    report_believed = _believed(session, attempt, job, report, requested_stops)
    if report_believed.reason is EndReason.IDLE_TIMEOUT and requested_stop(job) is EndReason.PAUSED:
        return replace(report_believed, reason=EndReason.PAUSED)
    if OUTCOMES[report_believed.reason].state is not JobState.QUEUED:
        return report_believed
    if requested_stop(job) is EndReason.IDLE_TIMEOUT:
        return _instead(report_believed, EndReason.IDLE_TIMEOUT, DID_NOT_USE_GPUS)
    limit_us = job.stored_spec.time_limit // _MICROSECOND
    if report.reason not in _STOPS and job.ran_us + ran_us >= limit_us:
        return _instead(report_believed, EndReason.TIME_LIMIT, "the job's time limit was reached")
    return report_believed


def _believed(
    session: Session, attempt: Attempt, job: Job, report: ExitReport, requested_stops: Collection[EndReason]
) -> ExitReport:
    """Returns the report, or that of a lost worker for a stop that nobody requested."""
    if report.reason is EndReason.PREEMPTED and attempt.pool_devices:
        return report if report.message else replace(report, message="its cluster has preempted it")
    if report.reason is EndReason.PAUSED and job.pause_at is not None:
        return report  # it was to pause by itself
    if report.reason not in _STOPS or _was_requested(session, attempt, job, report.reason, requested_stops):
        return report
    message = f"it stopped without a request: {report.message or report.reason}"
    return replace(report, reason=EndReason.WORKER_LOST, message=message)


def _was_requested(
    session: Session, attempt: Attempt, job: Job, reason: EndReason, requested_stops: Collection[EndReason]
) -> bool:
    drained = session.get_one(Worker, attempt.worker_id).drain_requested_at
    rows = {
        EndReason.CANCELLED: job.cancel_requested_at,
        EndReason.PAUSED: job.pause_requested_at,
        EndReason.PREEMPTED: job.preempt_requested_at or drained,
        EndReason.IDLE_TIMEOUT: job.idle_requested_at,
    }
    known = {*requested_stops, *(stop for stop, since in rows.items() if since is not None)}
    # A supervisor that was stopped by a signal only reports `preempted`, whatever was requested.
    return reason in known or (bool(known) and reason is EndReason.PREEMPTED)


def _instead(report: ExitReport, reason: EndReason, why: str) -> ExitReport:
    """Returns the report of an attempt that no retry follows, for that reason."""
    ended = headline(report.message) or report.reason.replace("_", " ")
    return replace(report, reason=reason, message=f"{why}; its last attempt ended: {ended}")
