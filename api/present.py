"""Turns rows into the views that the API answers."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from store.db import stored_spec
from store.db.database import Session
from store.db.tables import Checkpoint, Job, JobEvent, Worker
from store.queries import queue_positions
from store.queries.listing import ListedJob
from store.queries.timeline import TimelineItem
from store.rows import checkpoints, metrics, reasons
from store.rows.checkpoints import ListedCheckpoint
from store.rows.logs import Line
from store.rows.reasons import DisplayedReason
from torchyard.contract.job import JobState
from torchyard.contract.rundir import STATE_FILE
from torchyard.contract.spec import SPEC, Spec
from torchyard.contract.views import (
    BestView,
    CheckpointView,
    DeviceView,
    ErrorView,
    EventView,
    HeldDevice,
    JobSummary,
    JobView,
    LogLine,
    MetricView,
    ProgressView,
    QueueEntry,
    StartsView,
    StatusReason,
    View,
    WaitingReason,
    WorkerView,
)

_SUMMARY_METRICS = frozenset({"train/loss", "val/loss"})
"""The metrics that a list shows of each job, besides the monitored one."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def job(session: Session, row: Job) -> JobView:
    """Returns the view of a job."""
    return _job(
        row,
        SPEC.validate_python(row.spec),
        latest=metrics.latest(session, [row.id])[row.id],
        best=checkpoints.best_of(session, row),
        reason=reasons.displayed(session, [row])[row.id],
        position=queue_positions.queue_positions(session, [row]).get(row.id),
    )


def new_job(session: Session, row: Job, spec: Spec) -> JobView:
    """Returns the view of a job that was just submitted, which has only its spec and its place in the queue."""
    reason = reasons.displayed(session, [row])[row.id]
    return _job(row, spec, latest={}, best=None, reason=reason, position=queue_positions.queue_position(session, row))


def summaries(session: Session, jobs: Sequence[ListedJob]) -> list[JobSummary]:
    """Returns the rows of a list of jobs, with a fixed number of queries."""
    rows = [listed.row for listed in jobs]
    keys = {*_SUMMARY_METRICS, *(listed.monitor for listed in jobs)}
    latest = metrics.latest(session, [row.id for row in rows], keys=keys)
    best = checkpoints.best_of_jobs(session, {listed.row.id: listed.mode for listed in jobs})
    why = reasons.displayed(session, rows)
    positions = queue_positions.queue_positions(session, rows)
    return [
        JobSummary(
            **_facts(
                listed.row,
                monitor=listed.monitor,
                error=listed.error,
                latest=_chosen(latest[listed.row.id], monitor=listed.monitor),
                best=best.get(listed.row.id),
                reason=why[listed.row.id],
                position=positions.get(listed.row.id),
            )
        )
        for listed in jobs
    ]


def event(row: JobEvent) -> EventView:
    """Returns the view of an event."""
    return EventView.model_validate(
        {"seq": row.seq, "time": time(row.time), "type": row.type, "attempt": row.attempt, "data": row.data}
    )


def item(stored: TimelineItem) -> View:
    """Returns the view of an item of a stream."""
    content = stored.content
    if isinstance(content, JobEvent):
        return event(content)
    if isinstance(content, Line):
        return log_line(content)
    assert stored.attempt is not None  # points come from attempts only
    return MetricView(
        key=content.key,
        step=content.step,
        value=content.value,
        time=time(content.time),
        attempt=stored.attempt,
    )


def log_line(line: Line) -> LogLine:
    """Returns the view of a line of output."""
    return LogLine.model_validate(
        {
            "line": line.line,
            "time": time(line.time),
            "attempt": line.attempt,
            "rank": line.rank,
            "stream": line.stream,
            "text": line.text,
        }
    )


def checkpoint(listed: ListedCheckpoint) -> CheckpointView:
    """Returns the view of a checkpoint."""
    row = listed.row
    sent = checkpoints.file_of(row, STATE_FILE)
    return CheckpointView(
        id=row.id,
        epoch=row.epoch,
        step=row.step,
        attempt=row.attempt,
        metrics=row.metrics,
        files=row.files,
        size=sent["size"],
        sha256=sent["sha256"],
        aliases=listed.aliases,
        created_at=time(row.created_at),
    )


def queue(session: Session, found: Sequence[tuple[int, Job]]) -> list[QueueEntry]:
    """Returns the entries of queued jobs, each given with its place in the queue."""
    why = reasons.displayed(session, [row for _, row in found])
    return [_queue_entry(place, row, why[row.id]) for place, row in found]


def worker(row: Worker, alive: bool, holders: dict[tuple[str, str], str]) -> WorkerView:
    """Returns the view of a worker. `holders` comes from `store.rows.jobs.holders`."""
    seen = [DeviceView.model_validate(device) for device in row.devices]
    return WorkerView(
        id=row.id,
        name=row.name,
        state="lost" if not alive else "ready" if row.drain_requested_at is None else "draining",
        started_at=time(row.started_at),
        seen_at=time(row.seen_at),
        devices=[device.model_copy(update={"job_id": holders.get((row.id, device.uuid))}) for device in seen],
        starts=None if row.starts is None else StartsView.model_validate(row.starts),
    )


def time(microseconds: int) -> datetime:
    """Returns the time of a table's column."""
    return _EPOCH + timedelta(microseconds=microseconds)


def microseconds(time: datetime) -> int:
    """Returns `time` as the tables store it."""
    return (time - _EPOCH) // timedelta(microseconds=1)


def _queue_entry(place: int, row: Job, reason: DisplayedReason) -> QueueEntry:
    return QueueEntry(
        position=place,
        job_id=row.id,
        name=row.name,
        owner=row.owner,
        priority=row.priority,
        resources=stored_spec.parse_resources(row.spec["resources"]),
        reason=WaitingReason(code=reason.code, message=reason.message, since=time(reason.since)),
        not_before=None if row.not_before is None else time(row.not_before),
        created_at=time(row.created_at),
    )


def _job(
    row: Job,
    spec: Spec,
    *,
    latest: dict[str, float],
    best: Checkpoint | None,
    reason: DisplayedReason,
    position: int | None,
) -> JobView:
    facts = _facts(
        row,
        monitor=row.stored_spec.checkpoint.monitor,
        error=row.error,
        latest=latest,
        best=best,
        reason=reason,
        position=position,
    )
    return JobView(**facts, spec=spec, card=row.card)


def _facts(
    row: Job,
    *,
    monitor: str,
    error: dict[str, Any] | None,
    latest: dict[str, float],
    best: Checkpoint | None,
    reason: DisplayedReason,
    position: int | None,
) -> dict[str, Any]:
    """Returns the fields of a summary, which the view of a job has too."""
    return {
        "id": row.id,
        "name": row.name,
        "state": JobState(row.state),
        "status_reason": StatusReason(
            code=reason.code, message=reason.message, position=position, since=time(reason.since)
        ),
        "owner": row.owner,
        "priority": row.priority,
        "labels": row.labels,
        "attempt": row.attempt,
        "retry_of": row.retry_of,
        "progress": ProgressView.model_validate(row.progress or {}),
        "metrics": latest,
        "best": None if best is None else _best(best, monitor=monitor),
        "devices": [HeldDevice.model_validate(device) for device in row.devices],
        "error": None if error is None else ErrorView.model_validate(error),
        "created_at": time(row.created_at),
        "started_at": None if row.started_at is None else time(row.started_at),
        "finished_at": None if row.finished_at is None else time(row.finished_at),
        "version": row.version,
    }


def _chosen(latest: dict[str, float], *, monitor: str) -> dict[str, float]:
    return {key: value for key, value in latest.items() if key == monitor or key in _SUMMARY_METRICS}


def _best(best: Checkpoint, *, monitor: str) -> BestView | None:
    if best.monitored is None:
        return None
    return BestView(metric=monitor, value=best.monitored, epoch=best.epoch, step=best.step, checkpoint_id=best.id)
