"""What a worker holds still while it removes folders. Raises Unavailable."""

from collections.abc import Generator
from contextlib import contextmanager

from sqlalchemy import select

from store.db.tables import Attempt
from store.rows import jobs
from store.store import Store


@contextmanager
def without_attempt(store: Store, job_id: str, number: int) -> Generator[bool]:
    """Tells whether the job has no attempt of this number. It gets none until the end of the block."""
    with store.write("move_aside") as session:
        jobs.lock(session, job_id)  # the next claim waits
        known = select(Attempt.id).where(Attempt.job_id == job_id, Attempt.number == number)
        yield session.scalar(known) is None
