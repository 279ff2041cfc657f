"""SQL conditions: whether a job is queued, whether it is in the line, and whether it waits to be placed."""

from sqlalchemy import ColumnElement, and_, literal_column, or_

from store.tables import HELD, Job
from torchyard.contract.states import JobState


def is_queued(job: type[Job] = Job) -> ColumnElement[bool]:
    """Returns the condition that the job is queued."""
    # A literal: with a parameter, a planner could not use the partial indexes of queued jobs.
    return job.state == literal_column(f"'{JobState.QUEUED}'")


def in_line(job: type[Job] = Job) -> ColumnElement[bool]:
    """Returns the condition that the job is queued and does not wait for other jobs."""
    # Written as that of the partial index.
    return and_(is_queued(job), or_(job.not_before.is_(None), job.not_before < literal_column(str(HELD))))


def waits(job: type[Job] = Job) -> ColumnElement[bool]:
    """Returns the condition that the job is queued and not held back: after a failure, or for other jobs."""
    return and_(is_queued(job), job.not_before.is_(None))
