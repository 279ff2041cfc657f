"""What a transaction has changed, for who waits for it. Row functions note it; the store tells it after the commit."""

from dataclasses import dataclass, field

from sqlalchemy.orm import Session

_KEY = "torchyard.news"


@dataclass
class Announcement:
    """The jobs that changed, their priorities in the queue, and whether there is something to do for a worker."""

    changed: set[str] = field(default_factory=set[str])
    priorities: dict[str, int | None] = field(default_factory=dict[str, int | None])
    """The priority of a job that waits in the queue; None for one that does not, or not any more."""
    wakes_workers: bool = False

    def __bool__(self) -> bool:
        """Whether there is anything to tell."""
        return self.wakes_workers or bool(self.changed)

    def mark_changed(self, job_id: str) -> None:
        """The job shows something new."""
        self.changed.add(job_id)

    def enqueue(self, job_id: str, *, priority: int) -> None:
        """The job waits, and a worker may take it."""
        self.mark_changed(job_id)
        self.priorities[job_id] = priority
        self.wakes_workers = True

    def dequeue(self, job_id: str) -> None:
        """The job does not wait in the queue any more."""
        self.mark_changed(job_id)
        self.priorities[job_id] = None

    def wake_workers(self) -> None:
        """A worker was asked for something, or has got a device back."""
        self.wakes_workers = True


def announcement_of(session: Session) -> Announcement:
    """The news of the session's transaction. Whoever commits the session tells them."""
    return session.info.setdefault(_KEY, Announcement())
