"""Verifies exit reports. A job may be able to write to the file of its report."""

from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta

from sqlalchemy.orm import Session

from store.db.tables import Attempt, Job, Worker
from torchyard.contract.job import OUTCOMES, EndReason, JobState
from torchyard.contract.records import ExitReport
from torchyard.contract.text import headline

_STOPS = {EndReason.CANCELLED, EndReason.PAUSED, EndReason.PREEMPTED}
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
    for the pause of a job with `pause_at`. A failure that a retry would follow becomes `time_limit` if the job's time
    is used up. `requested_stops` are the stops that the worker has requested, besides those in the rows; `ran_us` are
    the microseconds that the attempt ran.
    """
    if report.reason is EndReason.PREEMPTED and attempt.pool_devices:
        return report if report.message else replace(report, message="its cluster has preempted it")
    if report.reason is EndReason.PAUSED and job.pause_at is not None:
        return report  # it was to pause by itself
    if report.reason in _STOPS:
        return report if _was_requested(session, attempt, job, report.reason, requested_stops) else _lost(report)
    limit_us = job.stored_spec.time_limit // _MICROSECOND
    if OUTCOMES[report.reason].state is JobState.QUEUED and job.ran_us + ran_us >= limit_us:
        ended = headline(report.message) or report.reason.replace("_", " ")
        message = f"the job's time limit was reached; its last attempt ended: {ended}"
        return replace(report, reason=EndReason.TIME_LIMIT, message=message)
    return report


def _was_requested(
    session: Session, attempt: Attempt, job: Job, reason: EndReason, requested_stops: Collection[EndReason]
) -> bool:
    drained = session.get_one(Worker, attempt.worker_id).drain_requested_at
    rows = {
        EndReason.CANCELLED: job.cancel_requested_at,
        EndReason.PAUSED: job.pause_requested_at,
        EndReason.PREEMPTED: job.preempt_requested_at or drained,
    }
    known = {*requested_stops, *(stop for stop, since in rows.items() if since is not None)}
    # A supervisor that was stopped by a signal only reports `preempted`, whatever was requested.
    return reason in known or (bool(known) and reason is EndReason.PREEMPTED)


def _lost(report: ExitReport) -> ExitReport:
    message = f"it stopped without a request: {report.message or report.reason}"
    return replace(report, reason=EndReason.WORKER_LOST, message=message)
