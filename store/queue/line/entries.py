"""Where a job stands in the line, by its row."""

from typing import Any

from store.queue.line_facts import Bucket, LineEntry, Member, Standing
from store.tables import HELD, Base
from torchyard.contract.states import JobState

_NAMES = ("id", "owner", "device_request", "priority", "created_at", "shape", "not_before", "lined_at")
COLUMNS = tuple(Base.metadata.tables["jobs"].c[name] for name in _NAMES)
"""What these functions read of a row."""


def is_in_line(job: Any) -> bool:
    """Returns whether the job is queued and does not wait for other jobs."""
    return job.state == JobState.QUEUED and job.not_before != HELD


def entry_of(job: Any) -> LineEntry:
    """Returns the entry of a job in the line."""
    shape = job.shape if job.not_before is None else None
    return LineEntry(bucket_of(job), job.created_at, shape, job.lined_at)


def standing_of(job: Any) -> Standing:
    """Returns what the order of the line sees of a queued job."""
    return Standing(bucket_of(job), Member(job.id, job.created_at))


def bucket_of(job: Any) -> Bucket:
    """Returns the bucket of a queued job."""
    return Bucket(job.owner, job.device_request, job.priority)
