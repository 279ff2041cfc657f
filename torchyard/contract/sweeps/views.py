"""The JSON of sweeps and of their trials."""

from datetime import datetime
from typing import Literal

from pydantic import Field, JsonValue

from torchyard.contract.states import DatedReason, JobState
from torchyard.contract.sweeps.spec import Method, SweepSpec, SweepState
from torchyard.contract.team.roles import Visibility
from torchyard.contract.wire.view import Number, View


class TrialCounts(View):
    """The number of trials in each state, and in all. `waiting` trials have no job yet."""

    total: int
    waiting: int = 0
    queued: int = 0
    running: int = 0
    """Running and starting trials."""
    paused: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0


class BestTrial(View):
    """The trial with the best value so far."""

    trial: int
    job_id: str | None
    """Null if the job was deleted."""
    value: Number
    point: dict[str, JsonValue]
    checkpoint_id: str | None
    """Null without a checkpoint."""


class SweepSummary(View):
    """A sweep, without its spec."""

    id: str
    name: str
    state: SweepState
    status_reason: DatedReason
    owner: str
    visibility: Visibility
    method: Method
    monitor: str
    mode: Literal["min", "max"]
    max_parallel: int | None
    trials: TrialCounts
    created_at: datetime
    finished_at: datetime | None = None
    version: int


class SweepView(SweepSummary):
    """A sweep, with its spec and its best trial."""

    best: BestTrial | None
    spec: SweepSpec


class SweepResolved(View):
    """A sweep's spec with all defaults, and its number of trials."""

    spec: SweepSpec
    points: int


class TrialView(View):
    """A trial of a sweep. Rank 1 has the best value. Equal values rank by number. Without a value, `rank` is null."""

    number: int
    job_id: str | None
    """Null if the job was deleted or refused."""
    state: JobState
    """State of the job; `failed` if it was refused; the last state if it was deleted."""
    point: dict[str, JsonValue]
    point_omitted: bool | None = Field(default=None, exclude_if=lambda value: value is None)
    """Whether the list omits a `point` of more than 2,048 bytes. The spec of its job has the values."""
    value: Number | None
    """The best value of the sweep's metric; NaN if it only had NaN."""
    step: int = 0
    epoch: int | None = None
    rank: int | None
    """Rank, from 1; null without a value."""
    rung: int | None = None
    """`asha`: number of reached rungs."""
    error: str | None = None


class JobSweep(View):
    """The sweep of a job."""

    id: str
    name: str
    trial: int
    point: dict[str, JsonValue]
    point_omitted: bool | None = Field(default=None, exclude_if=lambda value: value is None)
    """Whether the list omits a `point` of more than 2,048 bytes. The job itself has it."""
