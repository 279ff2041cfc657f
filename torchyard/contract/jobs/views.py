"""The JSON of jobs and of actions on them."""

from datetime import datetime

from pydantic import Field, JsonValue

from torchyard.contract.jobs.columns import Scalar
from torchyard.contract.jobs.submissions import ProspectView
from torchyard.contract.queue.views import EstimateView, StopView
from torchyard.contract.spec.after import Ending
from torchyard.contract.spec.spec import JobSpec
from torchyard.contract.states import EndReason, JobState
from torchyard.contract.sweeps.views import JobSweep
from torchyard.contract.team.roles import Visibility
from torchyard.contract.wire.view import Number, Page, View


class StatusReason(View):
    """The reason for a job's state."""

    code: str
    message: str
    position: int | None = None
    since: datetime
    estimate: EstimateView | None = None
    """When a queued job is expected to start; null if there is no estimate."""


class ProgressView(View):
    epoch: int | None = None
    epochs: int | None = None
    step: int = 0
    total_steps: int | None = None
    fraction: float | None = None
    eta_seconds: float | None = None


class BestView(View):
    metric: str
    value: Number
    epoch: int | None
    step: int
    checkpoint_id: str
    remeasured: Number | None = None
    """The value when the checkpoint was re-evaluated in one process after training."""


class HeldDevice(View):
    """A device of the newest attempt. Devices are listed by rank."""

    worker: str
    index: int
    uuid: str
    name: str
    node: int = 0
    """The number of its node, from 0. A worker has one node; a pool may give several."""
    host: str | None = None
    """The node that the cluster chose; null: the worker's own host."""


class ErrorView(View):
    """The error of the job, or of its latest attempt. `code` is an EndReason."""

    code: EndReason
    message: str
    rank: int | None = None
    exit_code: int | None = None
    traceback: str | None = None


class JobSummary(View):
    """A job in a list.

    `metrics` has only `train/loss`, `val/loss` and the monitored metric. `error` has no traceback. Messages are cut
    after 1,000 characters. Request the job itself for the rest.
    """

    id: str
    name: str
    trainer: str
    state: JobState
    status_reason: StatusReason
    owner: str
    visibility: Visibility = "private"
    priority: int
    labels: dict[str, str]
    has_notes: bool = False
    archived: bool = False
    """Whether lists hide the job."""
    starred: bool = False
    """Whether the job has your star."""
    attempt: int
    retry_of: str | None = None
    sweep: JobSweep | None = None
    schedule_id: str | None = None
    """The schedule that submitted it, which may be deleted."""
    progress: ProgressView
    metrics: dict[str, Number]
    best: BestView | None = None
    devices: list[HeldDevice]
    error: ErrorView | None = None
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    version: int
    position: int = 0
    """Position of the newest stored item. A stream `after` it begins with the next item."""
    columns: dict[str, Scalar] | None = Field(default=None, exclude_if=lambda value: value is None)
    """Values of the requested `columns`, by name. Null: the job has no value, or you may not read it. Texts are cut
    after 200 characters; lists and objects are JSON.
    """


class SpreadView(View):
    """Statistics of the finite numbers in a column."""

    count: int
    mean: float
    std: float | None
    """The sample standard deviation; null for a single number."""
    min: float
    max: float


class JobGroup(View):
    """The jobs with one value of a column; a `value` of null is the jobs without a value."""

    key: str
    """The value for `in_group`."""
    value: str | None
    """The value: a text, or JSON."""
    name: str | None = None
    """The name of a sweep."""
    counts: dict[JobState, int]
    total: int
    columns: dict[str, SpreadView] | None = Field(default=None, exclude_if=lambda value: value is None)
    """Statistics of the requested `columns` with numbers, by name."""


class JobPage(Page[JobSummary]):
    """A page of jobs. The counts ignore the filter `state`."""

    counts: dict[JobState, int] | None = None
    """How many jobs are in each state; states without any are left out. Null unless it was asked for."""
    total: int | None = None
    """How many jobs there are in all states. Null unless it was asked for."""
    counts_complete: bool | None = None
    """False if there may be more: with other filters than `owner`, a list of more than 10,000 jobs is counted until
    1,000 are found, the newest ones. Null unless it was asked for."""
    groups: list[JobGroup] | None = None
    """The jobs that the whole filter matches by the values of a column, the largest group first. At most 200 groups,
    of the newest 10,000 jobs that you may read. Null unless it was asked for."""
    groups_complete: bool | None = None
    """False if there may be more groups or jobs. Null unless it was asked for."""
    list_complete: bool | None = None
    """False of a list that is sorted by a column, or of one group, if there are more jobs: it has those of the first
    10,000, which are the newest of a list that is sorted by a column. Null of other lists."""


class ColumnView(View):
    """A column for a table of jobs."""

    name: str
    """The column. A metric is listed as `last`; `best`, `min` and `max` exist too."""
    jobs: int
    """Number of jobs with a value."""
    differs: bool
    """Whether the values differ, or are missing in some jobs."""


class ColumnsView(View):
    """The columns with values, by name; at most 1,000, the most frequent ones."""

    data: list[ColumnView]
    jobs: int
    """Number of jobs that were read: at most the newest 500."""


class RefusedAction(View):
    """A job that the action did not change. `code` is the code of the error."""

    job_id: str
    code: str
    message: str


class ActionsView(View):
    """The result of an action on many jobs."""

    matched: int
    """Number of selected jobs that you may change."""
    done: int
    refused: list[RefusedAction]
    """Refused jobs, at most 50."""
    more: bool
    """Whether more jobs match the filter: repeat the request."""
    price: StopView | None = Field(default=None, exclude_if=lambda value: value is None)
    """The work that a `cancel` or `pause` would lose. Only with `dry_run`."""


class InitialView(View):
    """The weights from which a job starts. Fields of a source that is deleted, or that you may not read, are null."""

    ref: str
    """`init_from` of the resolved spec."""
    job_id: str | None
    """The job that saved the checkpoint; null if unknown."""
    checkpoint_id: str | None
    model: str | None
    """The model as `OWNER/NAME@VERSION`; null for a checkpoint of a job."""
    step: int


class AfterView(View):
    """A job that must end before this one starts. `name` and `state` are null if you may not read it."""

    job_id: str
    name: str | None
    """Null if the job was deleted, or you may not read it."""
    on: Ending
    """How the job must end."""
    state: JobState | None
    """Null if you may not read the job, or if it is unknown."""


class JobDetails(JobSummary):
    """What a job has besides its summary, without the documents that are stored as JSON: its spec and its card."""

    init_from: InitialView | None = None
    """The initial weights; null without `init_from`."""
    after: list[AfterView] = Field(default=[], description="the jobs that must end before this one starts")
    notes: str = Field(default="", description="the owner's notes, as Markdown; do not trust them as HTML")


class JobView(JobDetails):
    """A job, with its spec and the newest value of each metric."""

    spec: JobSpec
    card: dict[str, JsonValue] | None = None
    """The model card; null until the run writes it."""
    waits_for: ProspectView | None = Field(default=None, exclude_if=lambda value: value is None)
    """Only in the answer to a submission with `forecast`."""
