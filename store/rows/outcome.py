"""What becomes of a job whose attempt has ended."""

from store.db.tables import Job
from store.rows.jobs import Reason
from torchyard.contract.job import CRASH_LOOP_CAP, OUTCOMES, EndReason, JobState
from torchyard.contract.records import ExitReport


def next_state(
    job: Job, report: ExitReport, *, attempts_without_checkpoint: int, backoff_s: int
) -> tuple[JobState, Reason]:
    """What the job does next. What its owner asked for meanwhile is weighed here, where its row is held."""
    outcome = OUTCOMES[report.reason]
    code, message = str(report.reason), report.message or report.reason.replace("_", " ")
    if outcome.state.terminal:
        return outcome.state, Reason(code, message)
    if job.cancel_requested_at is not None:
        return JobState.CANCELLED, Reason("cancelled", f"cancelled by its owner; its last attempt ended: {message}")
    limit = job.stored_spec.max_restarts
    used_up = outcome.counted and job.restarts >= limit
    if used_up or attempts_without_checkpoint >= CRASH_LOOP_CAP:
        restarts = f" (after {job.restarts} of {limit} restarts)" if limit else ""
        barren_too = f" ({attempts_without_checkpoint} attempts in a row brought the job no further)"
        return JobState.FAILED, Reason(code, message + (restarts if used_up else barren_too))
    if job.pause_requested_at is not None:
        return JobState.PAUSED, Reason("paused", f"paused by its owner; its last attempt ended: {message}")
    if report.reason is EndReason.PAUSED:
        return JobState.QUEUED, Reason("resumed", "resumed while it was about to pause")
    wait = f"; the next one starts {backoff_s} s later at the earliest" if backoff_s else ""
    return JobState.QUEUED, Reason("retrying", f"attempt {job.attempt} ended ({code}): {message}{wait}")
