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
    """With those that start."""
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
    """Null if its run has saved no checkpoint."""


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
    """Null if the job was deleted, or was refused when it was to be made."""
    state: JobState
    """`failed` if the job was refused; of a deleted job, how it ended."""
    point: dict[str, JsonValue]
    point_omitted: bool | None = Field(default=None, exclude_if=lambda value: value is None)
    """True in lists, if its point takes more than 2,048 bytes: it is left out. The spec of its job has the values."""
    value: Number | None
    """The best value of the sweep's metric over its run. NaN if it measured nothing else."""
    step: int = 0
    epoch: int | None = None
    rank: int | None
    """From 1; null without a value."""
    rung: int | None = None
    """Of `asha`: how many rungs it has reached."""
    error: str | None = None


class JobSweep(View):
    """The sweep of a job."""

    id: str
    name: str
    trial: int
    point: dict[str, JsonValue]
    point_omitted: bool | None = Field(default=None, exclude_if=lambda value: value is None)
    """True in lists, if its point takes more than 2,048 bytes: it is left out. The job itself has it."""
