"""What is known of jobs and their attempts. Times are microseconds since the epoch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from store.jobs.initial_weights_facts import InitialFacts
from store.pages import FactPage
from store.queue.estimates_facts import EstimateFacts
from torchyard.contract.cluster.devices import DeviceReport
from torchyard.contract.jobs.columns import Column, Scalar
from torchyard.contract.jobs.filters import JobSort
from torchyard.contract.spec.after import Ending
from torchyard.contract.states import JobState, Reason

AT_ONCE = timedelta(0)
"""The grace of a forced cancel: the attempt is killed, and no checkpoint is waited for."""
WAITING = Reason("waiting", "queued")
"""Why a job is queued before any worker has said more."""
Cells: TypeAlias = Mapping[Column, Scalar]
"""The values of columns that a job has."""


@dataclass(frozen=True, slots=True)
class DisplayedReason:
    """Why a job is in its state, and since when."""

    code: str
    message: str
    since: int


@dataclass(frozen=True, slots=True)
class BestCheckpoint:
    """The checkpoint with the best value of the monitored metric."""

    id: str
    value: float
    epoch: int | None
    step: int
    remeasured: Mapping[str, Any] | None = None
    """As of `CheckpointFacts`."""


@dataclass(frozen=True, slots=True)
class JobSweepFacts:
    """Of a job, the sweep whose trial it is."""

    id: str
    name: str
    trial: int
    point: Mapping[str, Any] | None
    """None in a list, if it is long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedJob:
    """A job of a list: without its spec and card, which may be large."""

    id: str
    owner: str
    visibility: str
    name: str
    trainer: str
    state: JobState
    priority: int
    labels: Mapping[str, str]
    retry_of: str | None
    schedule_id: str | None
    version: int
    attempt: int
    progress: Mapping[str, Any] | None
    devices: Sequence[Any]
    """A `torchyard.contract.jobs.views.HeldDevice` each, as JSON."""
    position: int
    created_at: int
    started_at: int | None
    finished_at: int | None
    archived_at: int | None
    has_notes: bool
    starred_by: frozenset[str]
    """The users who have starred it: each sees the own star alone."""
    error: Mapping[str, Any] | None
    """Its last error; in a list without the traceback."""
    reason: DisplayedReason
    in_line: int | None
    """Its position in the queue, from 1; None if it is not queued."""
    metrics: Mapping[str, float]
    """The newest value of each metric, of a list only those that lists show."""
    monitor: str
    """The metric that decides which checkpoint is the best."""
    best: BestCheckpoint | None
    sweep: JobSweepFacts | None = None
    estimate: EstimateFacts | None = None
    """Of a queued job: when it is expected to start; None while that was not estimated."""


@dataclass(frozen=True, slots=True)
class DependencyFacts:
    """A job that must have ended before another one starts, as a caller may see it."""

    job_id: str
    name: str | None
    """None if it was deleted, or the caller may not read it."""
    on: Ending
    """How it must end."""
    state: JobState | None
    """None if the caller may not read it, or nothing is left that says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts(ListedJob):
    """A job, with all that is shown of it."""

    spec: str
    """JSON, as it was written."""
    card: str | None
    """JSON."""
    notes: str
    log_lines: int
    initial: InitialFacts | None
    """What its spec's `init_from` names."""
    after: Sequence[DependencyFacts]


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A queued job."""

    in_line: int
    """Its position in the queue, from 1."""
    id: str
    owner: str
    visibility: str
    name: str
    priority: int
    resources: Mapping[str, Any]
    """Those of its spec, as they were written."""
    reason: DisplayedReason
    not_before: int | None
    created_at: int
    estimate: EstimateFacts | None = None
    """As of `ListedJob`."""


_SORT_KEYS: Mapping[str, Callable[[ListedJob], str | int]] = {
    "name": lambda job: job.name,
    "owner": lambda job: job.owner,
    "state": lambda job: job.state,
    "priority": lambda job: job.priority,
    "started": lambda job: job.started_at or 0,
    "finished": lambda job: job.finished_at or 0,
}


def sort_key(job: ListedJob, sort: JobSort) -> str | int | None:
    """Returns the job's value of what a list is sorted by; None for `created`, which its id tells."""
    key = _SORT_KEYS.get(sort.removeprefix("-"))
    return None if key is None else key(job)


def has_number(sort: JobSort) -> bool:
    """Returns whether the sort keys of this order are numbers."""
    return sort.removeprefix("-") in {"priority", "started", "finished"}


@dataclass(frozen=True)
class JobCounts:
    """How many jobs of a list are in each state that any of them is in."""

    by_state: Mapping[JobState, int]
    is_complete: bool = True
    """Whether all were counted. If not, `by_state` has the newest ones that were found."""


@dataclass(frozen=True)
class ListCursor:
    """A position in a list. `key` is the job's value of the column by which the list is sorted."""

    key: str | int | None
    job_id: str


@dataclass(frozen=True)
class QueueCursor:
    """A position in the queue, which is ordered by `over_quota`, priority (the highest first), `key`, and id."""

    priority: int
    key: int
    """When the job was submitted, less the credit of its owner, in microseconds."""
    job_id: str
    over_quota: bool = False
    """Whether the job comes after those of all owners within their quotas."""


@dataclass(frozen=True)
class QueuePage(FactPage[QueuedJob]):
    """Some of the queued jobs, in the order of the line."""

    last: QueueCursor | None
    """The position of the last of them; None if there are none."""
    total: int
    """How many jobs are in the line."""


@dataclass(frozen=True)
class HeldBefore:
    """A device that an attempt holds or held. `known` is None if its worker does not have it any more."""

    worker: str
    node: int
    """The number of its node, from 0."""
    uuid: str
    known: DeviceReport | None


@dataclass(frozen=True)
class StoppedFor:
    """The job that has taken the place of an attempt. Its id and name are of what the caller may read."""

    owner: str
    job_id: str | None
    name: str | None


@dataclass(frozen=True)
class ListedAttempt:
    """A run of a job."""

    number: int
    worker: str
    """The name of its worker."""
    started_at: int
    ended_at: int | None
    end_reason: str | None
    detail: str | None
    start_step: int
    devices: Sequence[HeldBefore]
    stopped_for: StoppedFor | None = None
    """None also if that job was deleted since."""
    environment: Mapping[str, Any] | None = None
    """The environment that the job names, as it was then: an `EnvironmentReport`."""


@dataclass(frozen=True)
class Head:
    """How much a job has stored: its newest position; and the version of its row."""

    position: int
    version: int


@dataclass(frozen=True)
class VisibleJobs:
    """Of some jobs, those that a caller may read, and those that exist."""

    readable: frozenset[str]
    existing: frozenset[str]


@dataclass(frozen=True)
class Order:
    """By which column a list is sorted."""

    column: Column
    reverse: bool


@dataclass(frozen=True)
class TableCursor:
    """A position in a list that is arranged anew for each page."""

    index: int
    """How many jobs came before."""
    job_id: str
    """The last of them."""


@dataclass(frozen=True)
class JobList:
    """A page of a list."""

    page: FactPage[ListedJob]
    cells: Mapping[str, Cells]
    """The values of the columns that were asked for, by job: of those that the caller may read."""
    counts: JobCounts | None = None
    """How many jobs of the whole list are in each state."""
    is_complete: bool | None = None
    """Of a list that is arranged anew for each page: whether it has all jobs."""
    after: TableCursor | None = None
    """Where the next page of such a list begins."""
