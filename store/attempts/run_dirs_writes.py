"""What a worker holds still while it removes folders, and what it tells of those that it has. Raises Unavailable."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from sqlalchemy import select

from store.attempts import folders
from store.jobs import jobs
from store.store import Store
from store.tables import Attempt


@contextmanager
def without_attempt(store: Store, job_id: str, number: int) -> Generator[bool]:
    """Tells whether the job has no attempt of this number. It gets none until the end of the block."""
    with store.write("move_aside") as session:
        jobs.lock(session, job_id)  # the next claim waits
        known = select(Attempt.id).where(Attempt.job_id == job_id, Attempt.number == number)
        yield session.scalar(known) is None


@contextmanager
def without_open_attempt(store: Store, job_id: str) -> Generator[bool]:
    """Tells whether no attempt of the job is open. None is claimed until the end of the block."""
    with store.write("move_aside") as session:
        jobs.lock(session, job_id)
        is_open = select(Attempt.id).where(Attempt.job_id == job_id, Attempt.ended_at.is_(None))
        yield session.scalar(is_open.limit(1)) is None


def tell_folders(store: Store, worker_id: str, sizes: Mapping[str, int]) -> None:
    """Stores the bytes of all working folders on the worker's host, by job, if any has changed."""
    with store.read() as session:
        if folders.of_worker(session, worker_id) == sizes:
            return
    with store.write("heartbeat") as session:
        folders.replace(session, worker_id, sizes)
