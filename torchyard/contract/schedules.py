"""What is sent and answered about schedules."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from torchyard.contract.spec.schedule import Schedule, ScheduleKey
from torchyard.contract.spec.spec import JobSpec
from torchyard.contract.states import Reason
from torchyard.contract.team.roles import Visibility
from torchyard.contract.wire.schema import UNSET, Schema
from torchyard.contract.wire.view import View


class ScheduleState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    """By its owner, or by the service after refusals in a row. Its owner resumes it."""
    ENDED = "ended"
    """No time before its `until` is left."""


class SchedulePatch(Schema):
    """Changes of a schedule. Omitted fields stay."""

    paused: Annotated[
        bool, Field(description="true: submit nothing; false: submit again from the next scheduled time on")
    ] = UNSET
    schedule: ScheduleKey = UNSET


class ScheduledRun(View):
    """A run of a schedule."""

    job_id: str
    """Id of the job, which may be deleted."""
    due_at: datetime


class RefusedRun(View):
    """Why a scheduled job was not submitted. `code` is the code of the error."""

    code: str
    message: str
    at: datetime


class ScheduleSummary(View):
    """A schedule, without its spec."""

    id: str
    name: str
    """Name of its jobs."""
    owner: str
    visibility: Visibility
    schedule: Schedule
    state: ScheduleState
    status_reason: Reason | None = Field(description="null for an active schedule")
    next_at: datetime | None = Field(description="time of the next run; null unless the schedule is active")
    last_run: ScheduledRun | None
    skipped: int
    """Number of skipped runs: the previous run had not ended."""
    last_error: RefusedRun | None = Field(description="error of the last refused run; null after the next accepted run")
    created_at: datetime


class ScheduleView(ScheduleSummary):
    """A schedule, with the spec of its jobs."""

    spec: JobSpec
