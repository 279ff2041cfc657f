"""Reads what advice about a job is made of. Each read is bounded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
import tarfile
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from store.blobs.folder import BlobFolder
from store.cluster import shown_workers as worker_facts
from store.cluster.facts import WorkerFacts
from store.db.database import now_us
from store.jobs import show
from store.jobs.facts import JobFacts
from store.output import checkpoints, logs
from store.tables import Attempt, Job, JobEvent, Series
from store.team import access
from store.team.callers import Caller
from torchyard.contract.errors import NotFound
from torchyard.contract.states import JobState
from torchyard.contract.telemetry.views import LogLine

_MOST_WORKERS = 1000
_MOST_MEMBERS = 2000


@dataclass(frozen=True)
class AdviceFacts:
    """What is known of one job at one moment."""

    job: JobFacts
    failure: Mapping[str, Any] | None
    """How the job failed, or the attempt after which it waits for the next one."""
    lines: Sequence[LogLine]
    """The last lines of that attempt; of a script that runs or has succeeded without a metric, those of rank 0."""
    workers: Sequence[WorkerFacts]
    """All if the job waits for devices, its own if it has some."""
    silence_us: int | None
    """How long ago the attempt that runs last reported something; None: it has not yet, or none runs."""
    checkpoint_step: int | None
    """The step of the checkpoint that the job would go on from; None without any."""


def collect(session: Session, job_id: str, *, caller: Caller) -> AdviceFacts:
    """Reads what advice about a job is made of. Raises NotFound."""
    job = access.require_job(session, job_id, caller)
    state = JobState(job.state)
    failure = _last_failure(session, job) if state in {JobState.FAILED, JobState.QUEUED} else None
    saved = checkpoints.find_resumed(session, job.id)
    return AdviceFacts(
        job=show.show_job(session, job),
        failure=failure,
        lines=_last_lines(session, job, failure),
        workers=_workers(session, job),
        silence_us=_silence_us(session, job) if state is JobState.RUNNING else None,
        checkpoint_step=None if saved is None else saved.step,
    )


def bundle_paths(blobs: BlobFolder, sha256: str) -> list[str]:
    """Returns the paths of the first 2000 files of a bundle; none if it is gone. Raises OSError."""
    try:
        with blobs.open(sha256) as file, tarfile.open(fileobj=file, mode="r:") as tar:
            return [member.name for member in islice(tar, _MOST_MEMBERS)]
    except (NotFound, tarfile.TarError):
        return []


def _last_failure(session: Session, job: Job) -> dict[str, Any] | None:
    """Returns how the job failed, or how the attempt did after which it is queued again; None if neither is so."""
    if job.error is not None:
        return job.error
    query = select(JobEvent.data).where(JobEvent.job_id == job.id, JobEvent.type == "state")
    newest = session.scalar(query.order_by(JobEvent.seq.desc()).limit(1))
    return None if newest is None else newest.get("error")


def _last_lines(session: Session, job: Job, failure: Mapping[str, Any] | None) -> list[LogLine]:
    if failure is None:
        prints = job.trainer == "script" and job.state in {JobState.RUNNING, JobState.SUCCEEDED}
        has_metrics = prints and session.scalar(select(Series.id).where(Series.job_id == job.id).limit(1)) is not None
        return logs.list_newest(session, job.id, attempt=job.attempt, rank=0) if prints and not has_metrics else []
    return logs.list_newest(session, job.id, attempt=job.attempt, rank=failure.get("rank"))


def _silence_us(session: Session, job: Job) -> int | None:
    # Measured by the database's clock, and only of the event log, as a stall is.
    newest = select(now_us() - Attempt.reported_at).where(Attempt.job_id == job.id, Attempt.number == job.attempt)
    return session.scalar(newest)


def _workers(session: Session, job: Job) -> Sequence[WorkerFacts]:
    if job.state == JobState.QUEUED:
        return worker_facts.list_workers(session, limit=_MOST_WORKERS).items
    open_attempt = select(Attempt.worker_id).where(Attempt.job_id == job.id, Attempt.ended_at.is_(None))
    worker_id = session.scalar(open_attempt) if job.state in {JobState.STARTING, JobState.RUNNING} else None
    return [] if worker_id is None else [worker_facts.find_worker(session, worker_id)]
