"""SQL conditions: whether a job is queued, and whether it waits to be placed."""

from sqlalchemy import ColumnElement, and_, literal_column

from store.db.tables import Job
from torchyard.contract.job import JobState


def is_queued(job: type[Job] = Job) -> ColumnElement[bool]:
    """Returns the condition that the job is queued."""
    # A literal: with a parameter, a planner could not use the partial indexes of queued jobs.
    return job.state == literal_column(f"'{JobState.QUEUED}'")


def waits(job: type[Job] = Job) -> ColumnElement[bool]:
    """Returns the condition that the job is queued and not held back after a failure."""
    return and_(is_queued(job), job.not_before.is_(None))
