"""What is known of schedules. Times are microseconds since the epoch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from store.jobs.submission import KeyedRequest
from store.team.callers import Caller
from torchyard.contract.schedules import Schedule, ScheduleState
from torchyard.contract.spec import Spec
from torchyard.contract.team import Visibility


@dataclass(frozen=True)
class NewSchedule:
    """A job spec with a `schedule`. `visibility`: the default visibility, for a spec that sets none.

    `keyed`: the request, if it has an idempotency key.
    """

    spec: Spec
    schedule: Schedule
    caller: Caller
    visibility: Visibility
    keyed: KeyedRequest | None = None


@dataclass(frozen=True, kw_only=True)
class ScheduleFacts:
    """A schedule."""

    id: str
    owner: str
    name: str
    visibility: str
    spec: Mapping[str, Any]
    """The job's, as it was written."""
    schedule: Schedule
    state: ScheduleState
    reason_code: str | None
    """Why it is paused or has ended."""
    reason_message: str | None
    next_at: int | None
    last_due_at: int | None
    last_job_id: str | None
    skipped: int
    refused: int
    last_error: Mapping[str, Any] | None
    """`{code, message, at}`."""
    created_at: int


@dataclass(frozen=True)
class Due:
    """What a controller is to do for a schedule: submit a run, or cancel the job that a run has replaced."""

    schedule_id: str
    replaced: str | None
