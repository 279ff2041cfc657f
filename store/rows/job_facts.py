"""What is told of jobs: their rows with reasons, places in the queue, newest metrics and best checkpoints."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row
from sqlalchemy.orm import Session

from store.db.stored_spec import StoredCheckpointPolicy
from store.db.tables import Base, Job
from store.facts.callers import Caller
from store.facts.jobs import BestCheckpoint, DisplayedReason, JobFacts, ListedJob
from store.rows import access, checkpoints, metrics, queue_positions, reasons
from torchyard.contract.job import JobState

_SHOWN_METRICS = frozenset({"train/loss", "val/loss"})
"""The metrics that a list shows of each job, besides the monitored one."""
_TOLD = (
    *("id", "owner", "visibility", "name", "trainer", "priority", "labels", "retry_of", "version", "attempt"),
    *("progress", "devices", "position", "created_at", "started_at", "finished_at"),
)
"""Columns that are told as they are."""
_JOBS = Base.metadata.tables["jobs"].c
_ERROR_KEYS = ("code", "message", "rank", "exit_code")
_POLICY = StoredCheckpointPolicy()

_PLACED = ("state", "shape", "device_request", "not_before", "reason_code", "reason_message", "reason_since")
"""Columns that its reason and its place in the queue depend on."""

LISTED = (
    *(_JOBS[name] for name in (*_TOLD, *_PLACED)),
    _JOBS.spec["checkpoint"].label("checkpoint"),
    *(_JOBS.error[key].as_json().label(f"error_{key}") for key in _ERROR_KEYS),
    *reasons.COMMON,
)
"""What `listed` reads of a job: neither spec, card nor traceback, which may be large."""
_WHOLE = (*(_JOBS[name] for name in (*_TOLD, *_PLACED, "spec", "card", "error", "log_lines")), *reasons.COMMON)
"""What `readable` reads of a job."""


def readable(session: Session, job_id: str, caller: Caller) -> JobFacts:
    """Returns what is told of a job that the caller may read. Raises NotFound, also for what is no job's id."""
    row = access.readable_job(session, job_id, caller, *_WHOLE, source=reasons.JOINED)
    return _whole(session, row, reasons.of_row(row))


def of(session: Session, job: Job) -> JobFacts:
    """Returns what is told of a job."""
    return _whole(session, job, reasons.displayed(session, [job])[job.id])


def of_new(session: Session, jobs: Sequence[Job]) -> list[JobFacts]:
    """Returns what is told of jobs that were just submitted, which have only a spec and a place in the queue."""
    why = reasons.displayed(session, jobs)
    places = queue_positions.queue_positions(session, jobs)
    return [_facts(job, reason=why[job.id], place=places.get(job.id), latest={}, best=None) for job in jobs]


def listed(session: Session, rows: Sequence[Row[Any]]) -> list[ListedJob]:
    """Returns what lists tell of jobs, given by their columns `LISTED`, with a fixed number of statements."""
    policies = {row.id: row.checkpoint or {} for row in rows}
    monitors = {job_id: policy.get("monitor") or _POLICY.monitor for job_id, policy in policies.items()}
    begun = [row.id for row in rows if _has_begun(row)]
    modes = {job_id: policies[job_id].get("mode") or _POLICY.mode for job_id in begun}
    shown = {*_SHOWN_METRICS, *(monitors[job_id] for job_id in begun)}
    latest = metrics.latest(session, begun, keys=shown) if begun else {}
    best = checkpoints.best_of_jobs(session, modes)
    places = queue_positions.queue_positions(session, rows)
    return [
        ListedJob(
            **_told(row),
            error=_short_error(row),
            reason=reasons.of_row(row),
            place=places.get(row.id),
            metrics=_chosen(latest.get(row.id, {}), monitor=monitors[row.id]),
            monitor=monitors[row.id],
            best=best.get(row.id),
        )
        for row in rows
    ]


def _whole(session: Session, job: Any, reason: DisplayedReason) -> JobFacts:
    """`job` is a row of jobs, or its columns `_WHOLE`."""
    begun = _has_begun(job)
    return _facts(
        job,
        reason=reason,
        place=queue_positions.queue_positions(session, [job]).get(job.id),
        latest=metrics.latest(session, [job.id])[job.id] if begun else {},
        best=checkpoints.best_of_jobs(session, {job.id: _policy(job).mode}).get(job.id) if begun else None,
    )


def _facts(
    job: Any, *, reason: DisplayedReason, place: int | None, latest: dict[str, float], best: BestCheckpoint | None
) -> JobFacts:
    return JobFacts(
        **_told(job),
        error=job.error,
        reason=reason,
        place=place,
        metrics=latest,
        monitor=_policy(job).monitor,
        best=best,
        spec=job.spec,
        card=job.card,
        log_lines=job.log_lines,
    )


def _policy(job: Any) -> StoredCheckpointPolicy:
    return StoredCheckpointPolicy.model_validate(job.spec.get("checkpoint") or {})


def _has_begun(job: Any) -> bool:
    """Returns whether the job may have metrics and checkpoints: its attempts store them, or the job that it retries."""
    return job.attempt > 0 or job.retry_of is not None


def _told(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _TOLD} | {"state": JobState(row.state)}


def _short_error(row: Any) -> dict[str, Any] | None:
    if row.error_code is None:
        return None
    return {key: getattr(row, f"error_{key}") for key in _ERROR_KEYS}


def _chosen(latest: dict[str, float], *, monitor: str) -> dict[str, float]:
    return {key: value for key, value in latest.items() if key == monitor or key in _SHOWN_METRICS}
