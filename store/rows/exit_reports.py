"""What of an attempt's report is believed: it lies where the job might write."""

from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta

from sqlalchemy.orm import Session

from store.db.tables import Attempt, Job, Worker
from torchyard.contract.job import OUTCOMES, EndReason, JobState
from torchyard.contract.records import ExitReport

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
    """`report`, or what it is taken for: `worker_lost` for a stop that nobody asked for, `time_limit` for a failure
    after which no time is left.

    `requested_stops`: the stops that the worker has asked for, besides those that the rows tell of. `ran_us`: microseconds that
    the attempt ran.
    """
    if report.reason in _STOPS:
        return report if _was_asked_for(session, attempt, job, report.reason, requested_stops) else _lost(report)
    limit_us = job.stored_spec.time_limit // _MICROSECOND
    if OUTCOMES[report.reason].state is JobState.QUEUED and job.ran_us + ran_us >= limit_us:
        message = f"the job's time limit was reached; its last attempt ended ({report.reason}): {report.message}"
        return replace(report, reason=EndReason.TIME_LIMIT, message=message)
    return report


def _was_asked_for(
    session: Session, attempt: Attempt, job: Job, reason: EndReason, requested_stops: Collection[EndReason]
) -> bool:
    drained = session.get_one(Worker, attempt.worker_id).drain_requested_at
    rows = {
        EndReason.CANCELLED: job.cancel_requested_at,
        EndReason.PAUSED: job.pause_requested_at,
        EndReason.PREEMPTED: job.preempt_requested_at or drained,
    }
    known = {*requested_stops, *(stop for stop, since in rows.items() if since is not None)}
    # A supervisor that could only be told by a signal says `preempted`, whatever was asked for.
    return reason in known or (bool(known) and reason is EndReason.PREEMPTED)


def _lost(report: ExitReport) -> ExitReport:
    message = f"it stopped, though nobody asked it to: {report.message or report.reason}"
    return replace(report, reason=EndReason.WORKER_LOST, message=message)
