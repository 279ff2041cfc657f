"""What a transaction has changed, for who waits for it. Row functions note it; the store tells it after the commit."""

from dataclasses import dataclass, field

from sqlalchemy.orm import Session

_KEY = "torchyard.news"


@dataclass
class News:
    """The jobs that changed, their places in the queue, and whether there is something to do for a worker."""

    changed: set[str] = field(default_factory=set[str])
    places: dict[str, int | None] = field(default_factory=dict[str, int | None])
    """The priority of a job that waits in the queue; None for one that does not, or not any more."""
    ring: bool = False

    def __bool__(self) -> bool:
        """Whether there is anything to tell."""
        return self.ring or bool(self.changed)

    def change(self, job_id: str) -> None:
        """The job shows something new."""
        self.changed.add(job_id)

    def enqueue(self, job_id: str, *, priority: int) -> None:
        """The job waits, and a worker may take it."""
        self.change(job_id)
        self.places[job_id] = priority
        self.ring = True

    def dequeue(self, job_id: str) -> None:
        """The job does not wait in the queue any more."""
        self.change(job_id)
        self.places[job_id] = None

    def wake(self) -> None:
        """A worker was asked for something, or has got a device back."""
        self.ring = True


def news_of(session: Session) -> News:
    """The news of the session's transaction. Whoever commits the session tells them."""
    return session.info.setdefault(_KEY, News())
