"""Room that is being made: which jobs stop so that a waiting one can start, and where."""

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session, aliased

from store.db.database import now_us
from store.db.tables import Attempt, Job, Worker
from torchyard.job import JobState

PATIENCE = timedelta(seconds=90)
"""How long after its grace all that is left of a job that makes room should have ended."""


@dataclass(frozen=True)
class Stop:
    """A job that holds devices of a worker and was asked to give them back."""

    job_id: str
    favoured: str
    """The job that needs the devices."""
    worker_id: str
    worker: str
    """The worker's name."""
    overdue: bool = False
    """Whether its grace has passed, and PATIENCE."""


def stops(session: Session) -> list[Stop]:
    """All jobs of all workers that make room for a job that still waits, and hold their devices yet, by id."""
    waiting = aliased(Job)
    asked_us_ago = now_us() - Job.preempt_requested_at
    query = (
        select(Job, asked_us_ago, Worker.id, Worker.name)
        .join(Attempt, Attempt.job_id == Job.id)
        .join(Worker, Worker.id == Attempt.worker_id)
        .join(waiting, waiting.id == Job.preempted_for)
        .where(Attempt.ended_at.is_(None), waiting.state == JobState.QUEUED)
        .order_by(Job.id)
    )
    return [
        Stop(
            job.id,
            str(job.preempted_for),
            worker_id,
            worker,
            overdue=timedelta(microseconds=us) > job.terms.stop_grace + PATIENCE,
        )
        for job, us, worker_id, worker in session.execute(query)
    ]
