"""Room that is being made: which jobs stop so that a waiting one can start, and where."""

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session, aliased

from store.db.database import now_us
from store.db.tables import Attempt, Job, Worker
from torchyard.contract.job import JobState

OVERDUE_AFTER = timedelta(seconds=90)
"""How long after its grace all that is left of a job that makes room should have ended."""


@dataclass(frozen=True)
class PreemptedJob:
    """A job that holds devices of a worker and was asked to give them back."""

    job_id: str
    preemptor: str
    """The job that needs the devices."""
    worker_id: str
    worker: str
    """The worker's name."""
    overdue: bool = False
    """Whether its grace has passed, and PATIENCE."""


_WAITING = aliased(Job)
# Built once, as each look at the queue executes it. In no order: in the order of ids, SQLite would read all jobs.
_STOPS = (
    select(Job, now_us() - Job.preempt_requested_at, Worker.id, Worker.name)
    .join(Attempt, Attempt.job_id == Job.id)
    .join(Worker, Worker.id == Attempt.worker_id)
    .join(_WAITING, _WAITING.id == Job.preempted_for)
    .where(Attempt.ended_at.is_(None), _WAITING.state == JobState.QUEUED)
)


def preempted_jobs(session: Session) -> list[PreemptedJob]:
    """All jobs of all workers that make room for a job that still waits, and hold their devices yet, by id."""
    found = [
        PreemptedJob(
            job.id,
            str(job.preempted_for),
            worker_id,
            worker,
            overdue=timedelta(microseconds=us) > job.stored_spec.stop_grace + OVERDUE_AFTER,
        )
        for job, us, worker_id, worker in session.execute(_STOPS)
    ]
    return sorted(found, key=lambda stop: stop.job_id)
