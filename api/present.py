"""Turns rows into the views that the API answers."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from store.db import stored_spec
from store.db.database import Session
from store.db.tables import Checkpoint, Job, JobEvent, Worker
from store.queries import queue_positions
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

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def job(session: Session, row: Job) -> JobView:
    """Returns the view of a job."""
    return job_list(session, [row])[0]


def new_job(session: Session, row: Job, spec: Spec) -> JobView:
    """Returns the view of a job that was just submitted, which has only its spec and its place in the queue."""
    reason = reasons.displayed(session, [row])[row.id]
    return _job(row, spec, latest={}, best=None, reason=reason, position=queue_positions.queue_position(session, row))


def job_list(session: Session, rows: Sequence[Job]) -> list[JobView]:
    """Returns the views of jobs in the given order, with a fixed number of queries."""
    latest = metrics.latest(session, [row.id for row in rows])
    best = checkpoints.best_of_jobs(session, rows)
    why = reasons.displayed(session, rows)
    positions = queue_positions.queue_positions(session, rows)
    return [
        _job(
            row,
            SPEC.validate_python(row.spec),
            latest=latest[row.id],
            best=best.get(row.id),
            reason=why[row.id],
            position=positions.get(row.id),
        )
        for row in rows
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
    return JobView(
        id=row.id,
        name=row.name,
        state=JobState(row.state),
        status_reason=StatusReason(
            code=reason.code, message=reason.message, position=position, since=time(reason.since)
        ),
        spec=spec,
        owner=row.owner,
        priority=row.priority,
        labels=row.labels,
        attempt=row.attempt,
        retry_of=row.retry_of,
        progress=ProgressView.model_validate(row.progress or {}),
        metrics=latest,
        best=None if best is None else _best(row, best),
        card=row.card,
        devices=[HeldDevice.model_validate(device) for device in row.devices],
        error=None if row.error is None else ErrorView.model_validate(row.error),
        created_at=time(row.created_at),
        started_at=None if row.started_at is None else time(row.started_at),
        finished_at=None if row.finished_at is None else time(row.finished_at),
        version=row.version,
    )


def _best(row: Job, best: Checkpoint) -> BestView | None:
    if best.monitored is None:
        return None
    return BestView(
        metric=row.stored_spec.checkpoint.monitor,
        value=best.monitored,
        epoch=best.epoch,
        step=best.step,
        checkpoint_id=best.id,
    )
