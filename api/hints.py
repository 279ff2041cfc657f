"""What workers and watchers are told once a change is committed. A hint that is lost costs time, and nothing else."""

import logging

from store.db.tables import Job
from store.queue import Queue
from torchyard.errors import Unavailable
from torchyard.job import JobState

_log = logging.getLogger(__name__)


def changed(queue: Queue, job: Job) -> None:
    """The job was submitted or has changed."""
    _tell(queue, job.id, priority=job.priority if job.state == JobState.QUEUED else None)


def deleted(queue: Queue, job_id: str) -> None:
    _tell(queue, job_id, priority=None)


def wake(queue: Queue) -> None:
    """A worker was asked for something."""
    try:
        queue.ring()
    except Unavailable as error:
        _log.warning("the workers look for what they were asked by themselves: %s", error.message)


def _tell(queue: Queue, job_id: str, *, priority: int | None) -> None:
    try:
        queue.tell(job_id, priority=priority)
    except Unavailable as error:
        _log.warning("job %s is stored as asked, but the workers have yet to look: %s", job_id, error.message)
