"""Turns rows into the views that the API answers."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from store.db import stored_spec
from store.db.database import Session
from store.db.tables import Artifact, AuditEntry, Bundle, Checkpoint, Job, JobEvent, Secret, Token, User, Worker
from store.queries import queue_positions
from store.queries.listing import ListedJob, QueuedJob
from store.queries.timeline import TimelineItem
from store.rows import access, checkpoints, metrics, reasons
from store.rows.access import Caller
from store.rows.checkpoints import ListedCheckpoint
from store.rows.device_history import History
from store.rows.logs import Line
from store.rows.reasons import DisplayedReason
from store.rows.stacks import Stacks
from store.uploads.folder import Partial
from torchyard.contract.job import JobState
from torchyard.contract.spec import SPEC, Spec
from torchyard.contract.team import Role
from torchyard.contract.views.base import View
from torchyard.contract.views.checkpoints import ArtifactView, BundleView, CheckpointView
from torchyard.contract.views.cluster import (
    DeviceColumns,
    DeviceHistory,
    DeviceView,
    HolderView,
    StartsView,
    WorkerHistoryView,
    WorkerView,
)
from torchyard.contract.views.jobs import (
    BestView,
    ErrorView,
    HeldDevice,
    JobSummary,
    JobView,
    ProgressView,
    QueueEntry,
    StatusReason,
    WaitingReason,
)
from torchyard.contract.views.team import AuditView, SecretView, TokenView, UserView
from torchyard.contract.views.telemetry import EventView, LogLine, LogMatch, MetricView, RankStacksView, StacksView

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


def summaries(session: Session, jobs: Sequence[ListedJob], caller: Caller) -> list[JobSummary]:
    """Returns the rows of a list of jobs, as the caller may see them, with a fixed number of queries."""
    rows = [listed.row for listed in jobs]
    keys = {*_SUMMARY_METRICS, *(listed.monitor for listed in jobs)}
    latest = metrics.latest(session, [row.id for row in rows], keys=keys)
    best = checkpoints.best_of_jobs(session, {listed.row.id: listed.mode for listed in jobs})
    why = reasons.displayed(session, rows)
    positions = queue_positions.queue_positions(session, rows)
    shown = [
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
    return [
        job if access.may_read(caller, listed.row) else withheld(job) for job, listed in zip(shown, jobs, strict=True)
    ]


def withheld(job: JobSummary) -> JobSummary:
    """Returns the row of another user's private job in an operator's list: without its text and its metrics."""
    reason = job.status_reason.model_copy(update={"message": ""})
    nothing: dict[str, Any] = {"labels": {}, "metrics": {}, "best": None, "error": None, "progress": ProgressView()}
    return job.model_copy(update={**nothing, "status_reason": reason})


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


def log_match(line: Line, spans: Sequence[tuple[int, int]]) -> LogMatch:
    """Returns the view of a line that a search found."""
    return LogMatch(**log_line(line).model_dump(), spans=[*spans])


def stacks(found: Stacks) -> StacksView:
    """Returns the view of an attempt's stacks. An answer to an earlier request is not shown while another waits."""
    answer = found.answer
    if found.requested_at is not None or answer is None:
        return StacksView(attempt=found.attempt, requested_at=_time_or_none(found.requested_at))
    return StacksView(
        attempt=found.attempt,
        requested_at=time(answer["requested_at"]),
        taken_at=time(answer["taken_at"]),
        ranks=[RankStacksView.model_validate(rank) for rank in answer["ranks"]],
    )


def checkpoint(listed: ListedCheckpoint) -> CheckpointView:
    """Returns the view of a checkpoint."""
    row = listed.row
    sent = checkpoints.main_file(row)
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
        source=row.source or "run",
        created_at=time(row.created_at),
    )


def artifact(row: Artifact) -> ArtifactView:
    """Returns the view of a file that a job left."""
    return ArtifactView(
        id=row.id,
        path=row.path,
        size=row.size,
        attempt=row.attempt,
        sha256=row.sha256,
        created_at=time(row.created_at),
    )


def queue(session: Session, found: Sequence[QueuedJob], caller: Caller) -> list[QueueEntry]:
    """Returns the entries of queued jobs, as the caller may see them."""
    why = reasons.displayed(session, [queued.row for queued in found])
    return [_queue_entry(queued, why[queued.row.id], caller) for queued in found]


def worker(row: Worker, alive: bool, holders: dict[tuple[str, str], Job], caller: Caller) -> WorkerView:
    """Returns the view of a worker, as the caller may see it. `holders` comes from `store.rows.jobs.holding_jobs`."""
    seen = [DeviceView.model_validate(device) for device in row.devices]
    return WorkerView(
        id=row.id,
        name=row.name,
        state="lost" if not alive else "ready" if row.drain_requested_at is None else "draining",
        started_at=time(row.started_at),
        seen_at=time(row.seen_at),
        devices=[_device(device, holders.get((row.id, device.uuid)), caller) for device in seen],
        starts=None if row.starts is None else StartsView.model_validate(row.starts),
    )


def worker_history(session: Session, row: Worker, history: History, caller: Caller) -> WorkerHistoryView:
    """Returns the history of the devices that the worker has now. Jobs are named that the caller may list."""
    named = {use.job_id for uses in history.slots.values() for use in uses.values() if use.job_id is not None}
    visible = access.listed_among(session, named, caller)
    return WorkerHistoryView(
        worker_id=row.id,
        resolution_seconds=history.resolution,
        devices=[
            DeviceHistory(
                uuid=device.uuid,
                index=device.index,
                name=device.name,
                kind=device.kind,
                columns=_device_columns(history, device.uuid, visible),
            )
            for device in map(DeviceView.model_validate, row.devices)
        ],
    )


def user(row: User) -> UserView:
    """Returns the view of a user."""
    return UserView(
        name=row.name,
        role=Role(row.role),
        created_at=time(row.created_at),
        disabled_at=_time_or_none(row.disabled_at),
    )


def token(row: Token) -> TokenView:
    """Returns the view of a token."""
    return TokenView(
        id=row.id,
        user=row.user,
        name=row.name,
        scopes=row.scopes,
        created_at=time(row.created_at),
        expires_at=_time_or_none(row.expires_at),
        used_at=_time_or_none(row.used_at),
        revoked_at=_time_or_none(row.revoked_at),
    )


def secret(row: Secret) -> SecretView:
    """Returns the view of a secret, without its value."""
    return SecretView(name=row.name, created_at=time(row.created_at), updated_at=time(row.updated_at))


def bundle(found: Bundle | Partial) -> BundleView:
    """Returns the view of a bundle, or of what has arrived of one."""
    if isinstance(found, Partial):
        return BundleView(
            sha256=found.sha256,
            size=found.size,
            files=None,
            state="partial",
            received=found.received,
            created_at=time(found.started_at),
        )
    return BundleView(
        sha256=found.sha256,
        size=found.size,
        files=found.files,
        state="complete",
        received=found.size,
        created_at=time(found.created_at),
    )


def audit_entry(row: AuditEntry) -> AuditView:
    """Returns the view of an entry of the audit."""
    return AuditView(
        id=row.id,
        time=time(row.time),
        who=row.who,
        token_id=row.token_id,
        address=row.address,
        action=row.action,
        object=row.object,
        outcome=row.outcome,
        request_id=row.request_id,
    )


def time(microseconds: int) -> datetime:
    """Returns the time of a table's column."""
    return _EPOCH + timedelta(microseconds=microseconds)


def _time_or_none(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else time(microseconds)


def _device_columns(history: History, uuid: str, visible: Collection[str]) -> DeviceColumns:
    found = [(float(begins), uses[uuid]) for begins, uses in history.slots.items() if uuid in uses]
    return DeviceColumns(
        time=[begins for begins, _ in found],
        utilization=[use.utilization for _, use in found],
        utilization_max=[use.utilization_max for _, use in found],
        memory_used=[use.memory_used for _, use in found],
        job_id=[use.job_id if use.job_id in visible else None for _, use in found],
    )


def _device(device: DeviceView, holder: Job | None, caller: Caller) -> DeviceView:
    if holder is None:
        return device
    seen = access.may_list(caller, holder)
    shown = HolderView(
        owner=holder.owner,
        state=JobState(holder.state),
        since=time(holder.started_at or holder.created_at),
        name=holder.name if seen else None,
    )
    return device.model_copy(update={"job_id": holder.id if seen else None, "holder": shown})


def _queue_entry(queued: QueuedJob, reason: DisplayedReason, caller: Caller) -> QueueEntry:
    row = queued.row
    seen, readable = access.may_list(caller, row), access.may_read(caller, row)
    return QueueEntry(
        position=queued.place,
        job_id=row.id if seen else None,
        name=row.name if seen else None,
        owner=row.owner,
        priority=row.priority,
        resources=stored_spec.parse_resources(queued.resources),
        reason=WaitingReason(code=reason.code, message=reason.message, since=time(reason.since)) if readable else None,
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
        "trainer": row.trainer,
        "state": JobState(row.state),
        "status_reason": StatusReason(
            code=reason.code, message=reason.message, position=position, since=time(reason.since)
        ),
        "owner": row.owner,
        "visibility": row.visibility,
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
        "position": row.position,
    }


def _chosen(latest: dict[str, float], *, monitor: str) -> dict[str, float]:
    return {key: value for key, value in latest.items() if key == monitor or key in _SUMMARY_METRICS}


def _best(best: Checkpoint, *, monitor: str) -> BestView | None:
    if best.monitored is None:
        return None
    return BestView(metric=monitor, value=best.monitored, epoch=best.epoch, step=best.step, checkpoint_id=best.id)
