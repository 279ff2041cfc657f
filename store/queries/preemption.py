"""Running preemptions: which jobs are stopping so that a waiting job can start, and on which worker."""

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session, aliased

from store.db.database import now_us
from store.db.tables import Attempt, Job, Worker
from torchyard.contract.durations import LONGEST_STOP_GRACE
from torchyard.contract.job import JobState

OVERDUE_AFTER = timedelta(seconds=90)
"""A preempted job is overdue this long after its grace."""


@dataclass(frozen=True)
class PreemptedJob:
    """A job that holds devices of a worker and was requested to release them."""

    job_id: str
    preemptor: str
    """The queued job that needs the devices."""
    worker_id: str
    worker: str
    """The worker's name."""
    owner: str
    preemptor_owner: str
    overdue: bool = False
    """Whether its grace and OVERDUE_AFTER have passed."""


_WAITING = aliased(Job)
# Built once, because each pass over the queue executes it. Not ordered: to order by ids, SQLite would read all jobs.
_PREEMPTED_JOBS = (
    select(Job, now_us() - Job.preempt_requested_at, Worker.id, Worker.name, _WAITING.owner)
    .join(Attempt, Attempt.job_id == Job.id)
    .join(Worker, Worker.id == Attempt.worker_id)
    .join(_WAITING, _WAITING.id == Job.preempted_for)
    .where(Attempt.ended_at.is_(None), _WAITING.state == JobState.QUEUED)
)


def preempted_jobs(session: Session, *, max_stop_grace: timedelta = LONGEST_STOP_GRACE) -> list[PreemptedJob]:
    """Returns the preempted jobs of all workers that still hold devices and whose preemptor still waits, by id.

    `max_stop_grace`: what cuts the jobs' `stop_grace`.
    """
    found = [
        PreemptedJob(
            job.id,
            str(job.preempted_for),
            worker_id,
            worker,
            job.owner,
            preemptor_owner,
            overdue=timedelta(microseconds=us) > min(job.stored_spec.stop_grace, max_stop_grace) + OVERDUE_AFTER,
        )
        for job, us, worker_id, worker, preemptor_owner in session.execute(_PREEMPTED_JOBS)
    ]
    return sorted(found, key=lambda job: job.job_id)
