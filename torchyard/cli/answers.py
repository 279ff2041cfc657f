"""What `ps`, `show` and `logs` print of a server's answers: those fields of the views, under the same names."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

from torchyard.contract.states import JobState
from torchyard.contract.wire.codec import Record

_answer = dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
"""Without methods that no answer needs: to make them takes as long as a request."""


def _zoned(time: datetime) -> datetime:
    if time.tzinfo is None:
        raise ValueError("must have a zone")
    return time


Time = Annotated[datetime, _zoned]


@_answer
class Me(Record):
    name: str


@_answer
class Estimate(Record):
    expected: Time | None
    low: Time | None
    high: Time | None
    made_at: Time
    held: int
    of: int


@_answer
class StatusReason(Record):
    code: str
    message: str
    estimate: Estimate | None = None


@_answer
class Progress(Record):
    epoch: int | None = None
    epochs: int | None = None
    step: int = 0
    total_steps: int | None = None
    fraction: float | None = None
    eta_seconds: float | None = None


@_answer
class Best(Record):
    metric: str
    value: float
    step: int
    remeasured: float | None = None


@_answer
class Failure(Record):
    code: str
    message: str
    rank: int | None = None
    exit_code: int | None = None
    traceback: str | None = None


@_answer
class Summary(Record):
    """A job as lists show it."""

    id: str
    name: str
    owner: str
    state: JobState
    status_reason: StatusReason
    progress: Progress
    created_at: Time
    starred: bool = False
    best: Best | None = None
    error: Failure | None = None


@_answer
class Jobs(Record):
    data: list[Summary]
    has_more: bool = False
    next: str | None = None


@_answer
class Whole(Record):
    """A page of what is printed as the server writes it."""

    data: list[dict[str, Any]]
    has_more: bool = False
    next: str | None = None


@_answer
class Counts(Record):
    counts: dict[str, int]
    counts_complete: bool = True


@_answer
class Sweep(Record):
    id: str
    name: str
    trial: int


@_answer
class Initial(Record):
    ref: str
    model: str | None
    step: int


@_answer
class After(Record):
    job_id: str
    name: str | None
    on: str
    state: JobState | None


@_answer
class Held(Record):
    index: int
    name: str
    node: int = 0
    host: str | None = None


@_answer
class Commit(Record):
    commit: str
    branch: str | None = None
    dirty: bool = False


@_answer
class Config(Record):
    git: Commit | None = None


@_answer
class Spec(Record):
    trainer: str
    config: Config | None = None


@_answer
class Job(Summary):
    """A job itself."""

    spec: Spec
    visibility: str = "private"
    priority: int
    labels: dict[str, str]
    archived: bool = False
    attempt: int
    retry_of: str | None = None
    sweep: Sweep | None = None
    metrics: dict[str, float]
    devices: list[Held]
    started_at: Time | None = None
    finished_at: Time | None = None
    init_from: Initial | None = None
    after: list[After] = field(default_factory=list[After])
    notes: str = ""
    card: dict[str, Any] | None = None


@_answer
class File(Record):
    path: str


@_answer
class Remeasured(Record):
    metrics: dict[str, float]


@_answer
class Checkpoint(Record):
    id: str
    epoch: int | None
    step: int
    metrics: dict[str, float]
    files: list[File]
    folder: File | None = None
    size: int
    aliases: list[str]
    source: str = "run"
    damaged: bool = False
    remeasured: Remeasured | None = None


@_answer
class Checkpoints(Record):
    data: list[Checkpoint]
    has_more: bool = False
    next: str | None = None


@_answer
class Line(Record):
    """A line of output."""

    line: int
    time: Time
    rank: int | None
    text: str


@_answer
class Lines(Record):
    data: list[Line]
    has_more: bool = False
    next: str | None = None
