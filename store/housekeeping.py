"""Passes over what is kept no longer, or in too many rows, for all domains. Any program may make them at any time.

Each consists of many short transactions, so it takes the store. Those that may take long yield after each: a caller
that stops there leaves the rest to a later pass.
"""

from collections.abc import Generator
from datetime import timedelta
import time

from store.blobs import garbage
from store.jobs import counts as job_counts
from store.output import joining, trimming
from store.output.facts import TrimLimits
from store.output.joining import Due, Stretch
from store.output.trimming import EVENTS_OF_ATTEMPTS, LOG_OF_JOB, TrimTarget
from store.store import Store
from store.team import stored_counts
from torchyard.contract.wire.units import format_duration


def collect_garbage(store: Store, *, limit: int = 1000) -> int:
    """Removes garbage blobs that no row refers to, and returns their number. Raises Unavailable and OSError.

    Removes none while somebody copies all blobs; a later call does.
    """
    with store.read() as session:
        if not garbage.is_any(session):
            return 0
    deadline = _clock_s() + garbage.REMOVAL.total_seconds() / 2
    with store.write("collect") as session:
        taken = garbage.take_unreferenced(session, limit=limit)
    if not taken.blobs:
        return 0
    removed: list[str] = []
    try:
        for sha256 in sorted(taken.blobs):
            if not store.blobs.remove(sha256, in_time=lambda: _clock_s() < deadline):
                break
            removed.append(sha256)
    finally:
        with store.write("forget_garbage") as session:
            garbage.finish(session, taken, removed=removed)
    return len(removed)


def add_up_counts(store: Store) -> Generator[None]:
    """Adds up how many jobs there are and what is stored, where many rows say it. Raises Unavailable.

    Yields after each transaction.
    """
    with store.write("add_up_counts") as session:
        job_counts.add_up(session)
    yield
    more = True
    while more:
        with store.write("add_up_counts") as session:
            more = stored_counts.add_up(session)
        yield


def trim_finished_jobs(store: Store, keep: TrimLimits) -> Generator[None]:
    """Trims the logs and events of finished jobs to `keep`, some hundreds of jobs per pass. Raises Unavailable.

    Yields after each short transaction. Any number of workers may run it at the same time.
    """
    for kind, age, size in (
        (LOG_OF_JOB, keep.logs, keep.log_bytes),
        (EVENTS_OF_ATTEMPTS, keep.events, keep.event_bytes),
    ):
        if age is None and size is None:
            continue
        with store.read() as session:
            due = trimming.list_jobs_to_trim(session, kind, age=age, size=size)
        yield
        for job_id, old in due:
            if old or size is None:
                why = f"it is kept for {format_duration(age or timedelta())} after the end of a job"
                yield from _trim_job(store, kind, job_id, to=0, why=why)
            else:
                yield from _trim_job(store, kind, job_id, to=size, why=f"the last {size} bytes of it are kept")


def join_points(store: Store) -> Generator[None]:
    """Joins points that were stored in short chunks, of some hundreds of jobs per pass. Raises Unavailable.

    Yields after each short transaction. Any number of workers may run it at the same time.
    """
    with store.read() as session:
        job_ids = joining.list_jobs_to_join(session)
    yield
    for job_id in job_ids:
        yield from _join_job(store, job_id)


def _clock_s() -> float:
    """Returns seconds that also pass while the host sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _join_job(store: Store, job_id: str) -> Generator[None]:
    while (due := _read_due(store, job_id)) is not None:
        yield
        for stretch in due.stretches:
            left: Stretch | None = stretch
            while left is not None:
                with store.write("join_points") as session:
                    left = joining.join(session, job_id, left)
                yield
        with store.write("join_points") as session:
            joining.mark_joined(session, job_id, end=due.end)
        yield


def _read_due(store: Store, job_id: str) -> Due | None:
    with store.read() as session:
        return joining.find_due(session, job_id)


def _trim_job(store: Store, kind: TrimTarget, job_id: str, *, to: int, why: str) -> Generator[None]:
    with store.read() as session:
        first = trimming.find_first_kept(session, kind, job_id, to) if to else trimming.PAST_END
    more = True
    while more:
        with store.write(kind.purpose) as session:
            more = trimming.remove_oldest(session, kind, job_id, first_kept=first, to=to, why=why)
        yield
