"""What a job has stored, in the order of the commits, for streams. Raises Unavailable."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from store.db.database import Snapshots
from store.jobs import timeline
from store.output.facts import TimelineItem
from store.tables import Job
from store.team import access
from store.team.callers import SERVICE
from torchyard.contract.job import JobState
from torchyard.contract.views.telemetry import StoredKind


@dataclass(frozen=True)
class Timeline:
    """A job's state and newest position, and what it has stored after a position, read as it is needed."""

    state: JobState
    position: int
    items: Iterator[TimelineItem]


@contextmanager
def opened(
    store: Snapshots, job_id: str, position: int, *, kinds: frozenset[StoredKind] = frozenset()
) -> Generator[Timeline]:
    """Reads what the job has stored after `position`, of some kinds or of all, for the duration of the block.

    Raises NotFound.
    """
    with store.read() as session:
        state, newest = access.readable_job(session, job_id, SERVICE, Job.state, Job.position)
        yield Timeline(JobState(state), newest, timeline.after(session, job_id, position, kinds=kinds))
