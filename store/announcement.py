"""What a transaction has changed. Row functions record it in the session; the store announces it after the commit."""

from dataclasses import dataclass, field

from sqlalchemy.orm import Session

_KEY = "torchyard.announcement"


@dataclass
class Announcement:
    """The jobs that changed, their places in the queue, and whether the workers have something to do."""

    changed: set[str] = field(default_factory=set[str])
    priorities: dict[str, int | None] = field(default_factory=dict[str, int | None])
    """By job id: the priority of a queued job; None for a job that has left the queue."""
    wakes_workers: bool = False

    def __bool__(self) -> bool:
        """Returns whether there is anything to announce."""
        return self.wakes_workers or bool(self.changed)

    def mark_changed(self, job_id: str) -> None:
        """Records that clients see something new of the job."""
        self.changed.add(job_id)

    def enqueue(self, job_id: str, *, priority: int) -> None:
        """Records that the job is queued and a worker may claim it."""
        self.mark_changed(job_id)
        self.priorities[job_id] = priority
        self.wakes_workers = True

    def dequeue(self, job_id: str) -> None:
        """Records that the job is not queued."""
        self.mark_changed(job_id)
        self.priorities[job_id] = None

    def wake_workers(self) -> None:
        """Records that a worker has a request to act on, or that a device was released."""
        self.wakes_workers = True


def announcement_of(session: Session) -> Announcement:
    """Returns the announcement of the session's transaction; `Store.write` sends it after the commit."""
    return session.info.setdefault(_KEY, Announcement())
