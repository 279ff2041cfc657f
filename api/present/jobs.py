"""The views of jobs, their attempts and the queue."""

from collections.abc import Sequence
from typing import Any

from api.present.times import time, time_or_none
from store.facts.callers import Caller, may_list, may_read
from store.facts.jobs import BestCheckpoint, JobFacts, ListedAttempt, ListedJob, QueuedJob
from torchyard.contract.job import EndReason
from torchyard.contract.resources import Resources
from torchyard.contract.spec import SPEC, Spec
from torchyard.contract.views.attempts import AttemptDevice, AttemptView
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


def job(facts: JobFacts, *, spec: Spec | None = None) -> JobView:
    """Returns the view of a job. `spec`: its spec, if it is parsed already."""
    spec = SPEC.validate_python(facts.spec) if spec is None else spec
    return JobView(**_summary(facts), spec=spec, card=facts.card)


def summary(facts: ListedJob) -> JobSummary:
    """Returns the row of a list of jobs."""
    return JobSummary(**_summary(facts))


def summaries(jobs: Sequence[ListedJob], caller: Caller) -> list[JobSummary]:
    """Returns the rows of a list of jobs, as the caller may see them."""
    return [summary(facts) if may_read(caller, facts) else withheld(summary(facts)) for facts in jobs]


def withheld(job: JobSummary) -> JobSummary:
    """Returns the row of another user's private job in an operator's list: without its text and its metrics."""
    reason = job.status_reason.model_copy(update={"message": ""})
    nothing: dict[str, Any] = {"labels": {}, "metrics": {}, "best": None, "error": None, "progress": ProgressView()}
    return job.model_copy(update={**nothing, "status_reason": reason})


def attempt(facts: ListedAttempt) -> AttemptView:
    """Returns the view of a run of a job."""
    ended = facts.ended_at
    return AttemptView(
        number=facts.number,
        worker=facts.worker,
        started_at=time(facts.started_at),
        ended_at=time_or_none(ended),
        end_reason=None if facts.end_reason is None else EndReason(facts.end_reason),
        detail=facts.detail,
        start_step=facts.start_step,
        devices=[
            AttemptDevice(
                worker=device.worker,
                index=None if device.known is None else device.known.index,
                uuid=device.uuid,
                name=None if device.known is None else device.known.name,
            )
            for device in facts.devices
        ],
        duration_seconds=None if ended is None else (ended - facts.started_at) / 1_000_000,
    )


def queue_entry(facts: QueuedJob, caller: Caller) -> QueueEntry:
    """Returns the entry of a queued job, as the caller may see it."""
    seen, reason = may_list(caller, facts), facts.reason
    shown = WaitingReason(code=reason.code, message=reason.message, since=time(reason.since))
    return QueueEntry(
        position=facts.place,
        job_id=facts.id if seen else None,
        name=facts.name if seen else None,
        owner=facts.owner,
        priority=facts.priority,
        resources=Resources.model_validate(facts.resources),
        reason=shown if may_read(caller, facts) else None,
        not_before=time_or_none(facts.not_before),
        created_at=time(facts.created_at),
    )


def _summary(facts: ListedJob) -> dict[str, Any]:
    """Returns the fields of a summary, which the view of a job has too."""
    reason = facts.reason
    return {
        "id": facts.id,
        "name": facts.name,
        "trainer": facts.trainer,
        "state": facts.state,
        "status_reason": StatusReason(
            code=reason.code, message=reason.message, position=facts.place, since=time(reason.since)
        ),
        "owner": facts.owner,
        "visibility": facts.visibility,
        "priority": facts.priority,
        "labels": facts.labels,
        "attempt": facts.attempt,
        "retry_of": facts.retry_of,
        "progress": ProgressView.model_validate(facts.progress or {}),
        "metrics": facts.metrics,
        "best": None if facts.best is None else _best(facts.best, metric=facts.monitor),
        "devices": [HeldDevice.model_validate(device) for device in facts.devices],
        "error": None if facts.error is None else ErrorView.model_validate(facts.error),
        "created_at": time(facts.created_at),
        "started_at": time_or_none(facts.started_at),
        "finished_at": time_or_none(facts.finished_at),
        "version": facts.version,
        "position": facts.position,
    }


def _best(best: BestCheckpoint, *, metric: str) -> BestView:
    return BestView(metric=metric, value=best.value, epoch=best.epoch, step=best.step, checkpoint_id=best.id)
