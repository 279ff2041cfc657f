"""What is told of jobs: their rows with reasons, places in the queue, newest metrics and best checkpoints."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row
from sqlalchemy.orm import Session

from store.db.stored_spec import StoredCheckpointPolicy
from store.db.tables import Base, Job
from store.facts.jobs import BestCheckpoint, DisplayedReason, JobFacts, ListedJob
from store.rows import checkpoints, metrics, queue_positions, reasons
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

LISTED = (
    *(_JOBS[name] for name in (*_TOLD, "state", "shape", "device_request", "not_before")),
    *(_JOBS[name] for name in ("reason_code", "reason_message", "reason_since")),
    _JOBS.spec["checkpoint"].label("checkpoint"),
    *(_JOBS.error[key].as_json().label(f"error_{key}") for key in _ERROR_KEYS),
)
"""What `listed` reads of a job: neither spec, card nor traceback, which may be large."""


def of(session: Session, job: Job) -> JobFacts:
    """Returns what is told of a job."""
    return _facts(
        job,
        reason=reasons.displayed(session, [job])[job.id],
        place=queue_positions.queue_positions(session, [job]).get(job.id),
        latest=metrics.latest(session, [job.id])[job.id],
        best=checkpoints.best_of_jobs(session, {job.id: job.stored_spec.checkpoint.mode}).get(job.id),
    )


def of_new(session: Session, jobs: Sequence[Job]) -> list[JobFacts]:
    """Returns what is told of jobs that were just submitted, which have only a spec and a place in the queue."""
    why = reasons.displayed(session, jobs)
    places = queue_positions.queue_positions(session, jobs)
    return [_facts(job, reason=why[job.id], place=places.get(job.id), latest={}, best=None) for job in jobs]


def listed(session: Session, rows: Sequence[Row[Any]]) -> list[ListedJob]:
    """Returns what lists tell of jobs, given by their columns `LISTED`, with a fixed number of statements."""
    if not rows:
        return []
    policies = {row.id: row.checkpoint or {} for row in rows}
    monitors = {job_id: policy.get("monitor") or _POLICY.monitor for job_id, policy in policies.items()}
    modes = {job_id: policy.get("mode") or _POLICY.mode for job_id, policy in policies.items()}
    latest = metrics.latest(session, [*policies], keys={*_SHOWN_METRICS, *monitors.values()})
    best = checkpoints.best_of_jobs(session, modes)
    why = reasons.displayed(session, rows)
    places = queue_positions.queue_positions(session, rows)
    return [
        ListedJob(
            **_told(row),
            error=_short_error(row),
            reason=why[row.id],
            place=places.get(row.id),
            metrics=_chosen(latest[row.id], monitor=monitors[row.id]),
            monitor=monitors[row.id],
            best=best.get(row.id),
        )
        for row in rows
    ]


def _facts(
    job: Job, *, reason: DisplayedReason, place: int | None, latest: dict[str, float], best: BestCheckpoint | None
) -> JobFacts:
    return JobFacts(
        **_told(job),
        error=job.error,
        reason=reason,
        place=place,
        metrics=latest,
        monitor=job.stored_spec.checkpoint.monitor,
        best=best,
        spec=job.spec,
        card=job.card,
        log_lines=job.log_lines,
    )


def _told(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _TOLD} | {"state": JobState(row.state)}


def _short_error(row: Any) -> dict[str, Any] | None:
    if row.error_code is None:
        return None
    return {key: getattr(row, f"error_{key}") for key in _ERROR_KEYS}


def _chosen(latest: dict[str, float], *, monitor: str) -> dict[str, float]:
    return {key: value for key, value in latest.items() if key == monitor or key in _SHOWN_METRICS}
