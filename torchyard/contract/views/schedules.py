"""The JSON of schedules."""

from datetime import datetime

from pydantic import Field

from torchyard.contract.schedules import Schedule, ScheduleState
from torchyard.contract.spec import JobSpec
from torchyard.contract.team import Visibility
from torchyard.contract.views.base import View


class ScheduleReason(View):
    """Why a schedule is paused or has ended."""

    code: str
    message: str


class ScheduledRun(View):
    """A run of a schedule."""

    job_id: str
    """The job, which may be deleted."""
    due_at: datetime


class RefusedRun(View):
    """Why a run was not submitted. `code` is that of the error which its owner would have got."""

    code: str
    message: str
    at: datetime


class ScheduleSummary(View):
    """A schedule as lists show it."""

    id: str
    name: str
    """The name of its jobs."""
    owner: str
    visibility: Visibility
    schedule: Schedule
    state: ScheduleState
    status_reason: ScheduleReason | None = Field(description="null of an active one")
    next_at: datetime | None = Field(description="when the next run is due; null unless it is active")
    last_run: ScheduledRun | None
    skipped: int
    """Times at which no run was submitted, as the one before had not ended."""
    last_error: RefusedRun | None = Field(description="null once a run is accepted again")
    created_at: datetime


class ScheduleView(ScheduleSummary):
    """A schedule, with the spec of its jobs."""

    spec: JobSpec
