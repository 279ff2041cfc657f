"""The jobs whose items streams send, and when to ask for the position of each."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from api.streams.throttle import Throttle
from store.jobs.facts import Head

READ_S = 0.25
"""Least seconds between two reads of a job's position."""


@dataclass(eq=False)
class WatchedJob:
    """A job that at least one stream watches. All items up to the position of `head` can be read."""

    head: Head
    throttle: Throttle = field(default_factory=lambda: Throttle(READ_S))


class WatchedJobs:
    """The watched jobs by id. A job is pending when its position may have risen."""

    def __init__(self) -> None:
        self._jobs: dict[str, WatchedJob] = {}
        self._pending: dict[str, None] = {}

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._jobs

    def ids(self) -> list[str]:
        return [*self._jobs]

    def position(self, job_id: str) -> int | None:
        """Returns the newest known position of a job, None if it is not watched or was deleted."""
        job = self._jobs.get(job_id)
        return None if job is None else job.head.position

    def add(self, heads: Mapping[str, Head]) -> None:
        """Adds jobs, and makes them pending."""
        for job_id, head in heads.items():
            self._jobs.setdefault(job_id, WatchedJob(head))
            self._pending[job_id] = None

    def remove(self, job_ids: Iterable[str]) -> None:
        for job_id in job_ids:
            self._jobs.pop(job_id, None)
            self._pending.pop(job_id, None)

    def note(self, job_id: str) -> None:
        """Makes a job pending if it is watched."""
        if job_id in self._jobs:
            self._pending[job_id] = None

    def note_all(self) -> None:
        self._pending |= dict.fromkeys(self._jobs)

    @property
    def due_at(self) -> float:
        """The time at which a pending job may be read next."""
        return min((self._jobs[job_id].throttle.next_at for job_id in self._pending), default=float("inf"))

    def take_due(self, now: float) -> list[str]:
        """Returns the pending jobs that may be read now. They are no longer pending."""
        due = [job_id for job_id in self._pending if self._jobs[job_id].throttle.begin(now)]
        for job_id in due:
            del self._pending[job_id]
        return due

    def update(self, job_id: str, head: Head | None) -> bool:
        """Keeps the head that was read; None if the job does not exist. Returns whether it was another one before."""
        job = self._jobs.get(job_id)
        if job is None or head == job.head:
            return False
        if head is not None:
            job.head = head
        return True
