"""What is shown of jobs: their rows with reasons, positions in the queue, newest metrics and best checkpoints."""

from collections.abc import Sequence
from functools import lru_cache
import json
from operator import attrgetter
from typing import Any, NamedTuple

from pydantic_core import from_json
from sqlalchemy import ColumnElement, Row, Text, cast
from sqlalchemy.orm import Session

from store.db.documents import Parsed, checkpoint_policy, without_traceback
from store.db.stored_spec import StoredCheckpointPolicy
from store.jobs import dependencies, initial_files, reasons, stars
from store.jobs.facts import BestCheckpoint, DependencyFacts, DisplayedReason, JobFacts, JobSweepFacts, ListedJob
from store.jobs.initial_weights_facts import InitialFacts
from store.output import checkpoints, metrics
from store.queue import estimates, positions
from store.queue.estimates_facts import EstimateFacts
from store.sweeps import trials
from store.tables import Base, Job
from store.team import access
from store.team.callers import Caller
from torchyard.contract.states import JobState
from torchyard.contract.team.roles import Role

_SHOWN_METRICS = frozenset({"train/loss", "val/loss"})
"""The metrics that a list shows of each job, besides the monitored one."""
_SHOWN_COLUMNS = (
    *("id", "owner", "visibility", "name", "trainer", "priority", "labels", "retry_of", "schedule_id", "version"),
    *("attempt", "progress", "devices", "position", "created_at", "started_at", "finished_at", "archived_at"),
)
"""Columns that are shown as they are."""
_read_shown = attrgetter(*_SHOWN_COLUMNS)
_STATES = {state.value: state for state in JobState}
_JOBS = Base.metadata.tables["jobs"].c

_TRIAL = ("sweep_id", "trial")
_QUEUED = ("state", "shape", "device_request", "not_before", "reason_code", "reason_message", "reason_since")
"""Columns that its reason and its position in the queue depend on."""


def _columns(*names: str) -> list[ColumnElement[Any]]:
    parsed = {"labels", "progress", "devices", "error"}
    return [cast(_JOBS[name], Parsed).label(name) if name in parsed else _JOBS[name] for name in names]


LISTED = (
    *_columns(*_SHOWN_COLUMNS, *_QUEUED, *_TRIAL),
    checkpoint_policy(_JOBS.spec).label("checkpoint"),
    cast(without_traceback(_JOBS.error), Parsed).label("short_error"),
    _JOBS.notes.is_not(None).label("has_notes"),
    stars.STARRED_BY,
    *reasons.COMMON,
)
"""What `show_rows` reads of a job: neither spec, card nor traceback, which may be large."""
_TEXTS = tuple(cast(_JOBS[name], Text).label(name) for name in ("spec", "card"))
_WHOLE = (
    *_columns(*_SHOWN_COLUMNS, *_QUEUED, *_TRIAL, "error", "log_lines", "notes"),
    stars.STARRED_BY,
    *_TEXTS,
    *reasons.COMMON,
)
"""What `find_job` reads of a job."""


def find_job(session: Session, job_id: str, caller: Caller) -> JobFacts:
    """Returns what is shown of a job that the caller may read. Raises NotFound, also for what is no job's id."""
    row = access.readable_job(session, job_id, caller, *_WHOLE, source=reasons.JOINED)
    documents = _Documents(row.spec, row.card)
    return _whole(session, row, documents, reasons.of_row(row), caller, starred_by=row.starred_by)


def find_version(session: Session, job_id: str, caller: Caller) -> int:
    """Returns the version of a job that the caller may read. Raises NotFound, also for what is no job's id."""
    return access.readable_job(session, job_id, caller, Job.version)[0]


def show_job(session: Session, job: Job) -> JobFacts:
    """Returns what is shown of a job, as its owner may see it."""
    owner, reason = Caller(job.owner, Role.MEMBER), reasons.displayed(session, [job])[job.id]
    return _whole(session, job, _documents(job), reason, owner, starred_by=stars.starred_by(session, job.id))


def of_new(
    job: Any,
    reason: DisplayedReason,
    *,
    monitor: str,
    best: BestCheckpoint | None,
    initial: InitialFacts | None,
    after: Sequence[DependencyFacts] = (),
) -> JobFacts:
    """Returns what is shown of a job that was just submitted, but for its position in the queue.

    `job` has its columns, as `new_jobs.insert_all` returns them.
    """
    documents = _Documents(job.spec, None)
    return _facts(
        job,
        documents,
        reason=reason,
        in_line=None,
        monitor=monitor,
        latest={},
        best=best,
        initial=initial,
        after=after,
        starred_by=None,
    )


def show_rows(session: Session, rows: Sequence[Row[Any]]) -> list[ListedJob]:
    """Returns what lists show of jobs, given by their columns `LISTED`, with a fixed number of statements."""
    policies = {row.id: policy_in(row.checkpoint) for row in rows}
    begun = [row.id for row in rows if _has_begun(row)]
    shown = {*_SHOWN_METRICS, *(policies[job_id].monitor for job_id in begun)}
    latest = metrics.read_latest(session, begun, keys=shown) if begun else {}
    best = checkpoints.find_best_of_jobs(session, {job_id: policies[job_id].mode for job_id in begun})
    in_line = positions.find_positions(session, rows)
    expected = estimates.of_jobs(session, rows, in_line)
    sweeps = trials.read_sweeps_of_jobs(session, rows, shown=True)
    return [
        ListedJob(
            **_shown_values(row),
            has_notes=row.has_notes,
            starred_by=stars.who_of(row.starred_by),
            error=row.short_error,
            reason=reasons.of_row(row),
            in_line=in_line.get(row.id),
            metrics=_chosen(latest[row.id], monitor=policies[row.id].monitor) if row.id in latest else {},
            monitor=policies[row.id].monitor,
            best=best.get(row.id),
            sweep=sweeps.get(row.id),
            estimate=expected.get(row.id),
        )
        for row in rows
    ]


class Policy(NamedTuple):
    """Which checkpoint of a job is the best."""

    monitor: str
    mode: str


@lru_cache(maxsize=1024)
def policy_in(checkpoint: str | None) -> Policy:
    """Returns the policy in the JSON of a spec's `checkpoint`; None if the spec has none."""
    return _policy_of(None if checkpoint is None else from_json(checkpoint))


class _Documents(NamedTuple):
    """Of a job, the JSON that is shown as it is stored."""

    spec: str
    card: str | None


def _documents(job: Job) -> _Documents:
    return _Documents(json.dumps(job.spec), None if job.card is None else json.dumps(job.card))


def _whole(
    session: Session,
    job: Any,
    documents: _Documents,
    reason: DisplayedReason,
    caller: Caller,
    *,
    starred_by: str | None,
) -> JobFacts:
    """`job` is a row of jobs, or its columns `_WHOLE`."""
    begun, needed = _has_begun(job), _read_spec(documents.spec)
    policy = needed.policy
    in_line = positions.find_positions(session, [job])
    return _facts(
        job,
        documents,
        reason=reason,
        in_line=in_line.get(job.id),
        estimate=estimates.of_jobs(session, [job], in_line).get(job.id),
        monitor=policy.monitor,
        latest=metrics.read_latest(session, [job.id])[job.id] if begun else {},
        best=checkpoints.find_best_of_jobs(session, {job.id: policy.mode}).get(job.id) if begun else None,
        initial=initial_files.of_job(session, job.id) if needed.has_initial_weights else None,
        sweep=trials.read_sweeps_of_jobs(session, [job]).get(job.id),
        after=dependencies.of_job(session, job.id, caller) if needed.waits else (),
        starred_by=starred_by,
    )


def _facts(
    job: Any,
    documents: _Documents,
    *,
    reason: DisplayedReason,
    in_line: int | None,
    monitor: str,
    latest: dict[str, float],
    best: BestCheckpoint | None,
    initial: InitialFacts | None,
    after: Sequence[DependencyFacts],
    starred_by: str | None,
    sweep: JobSweepFacts | None = None,
    estimate: EstimateFacts | None = None,
) -> JobFacts:
    return JobFacts(
        **_shown_values(job),
        has_notes=job.notes is not None,
        starred_by=stars.who_of(starred_by),
        notes=job.notes or "",
        error=job.error,
        reason=reason,
        in_line=in_line,
        metrics=latest,
        monitor=monitor,
        best=best,
        spec=documents.spec,
        card=documents.card,
        log_lines=job.log_lines,
        initial=initial,
        sweep=sweep,
        estimate=estimate,
        after=after,
    )


class _OfSpec(NamedTuple):
    """What an answer needs of a job's spec."""

    policy: Policy
    has_initial_weights: bool
    waits: bool
    """Whether it waits for other jobs, or did."""


@lru_cache(maxsize=64)
def _read_spec(spec: str) -> _OfSpec:
    written = from_json(spec)
    return _OfSpec(
        _policy_of(written.get("checkpoint")), written.get("init_from") is not None, bool(written.get("after"))
    )


def _policy_of(written: dict[str, Any] | None) -> Policy:
    """Returns what matters here of a spec's `checkpoint`, which an older or newer version may have written."""
    policy = StoredCheckpointPolicy.model_validate(written or {})
    return Policy(policy.monitor, policy.mode)


def _has_begun(job: Any) -> bool:
    """Returns whether the job may have metrics and checkpoints: its attempts store them, or the job that it retries."""
    return job.attempt > 0 or job.retry_of is not None


def _shown_values(row: Any) -> dict[str, Any]:
    return dict(zip(_SHOWN_COLUMNS, _read_shown(row), strict=True)) | {"state": _STATES[row.state]}


def _chosen(latest: dict[str, float], *, monitor: str) -> dict[str, float]:
    return {key: value for key, value in latest.items() if key == monitor or key in _SHOWN_METRICS}
