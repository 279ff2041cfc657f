"""The JSON that the API answers and the client returns. Times are RFC 3339 in UTC."""

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, PlainSerializer

from torchyard.contract.errors import Conflict, FieldError, TorchyardError
from torchyard.contract.job import EndReason, JobState
from torchyard.contract.record import json_number
from torchyard.contract.spec import JobSpec, Resources
from torchyard.contract.team import Resource, Role, Scope, Visibility

T = TypeVar("T")

EventKind = Literal["state", "message", "checkpoint", "progress"]
StoredKind = Literal[EventKind, "metric", "log"]
"""The kinds of things that a job stores, and that its stream tells."""
StreamTopic = Literal["jobs", "queue", "workers"]
"""What a stream of several jobs tells besides: that lists have changed."""
StreamKind = Literal[StoredKind, "live", "end"]
"""The kinds of a stream's events: `live` and `end`, which comes last, are not stored."""

_MOST_ERRORS = 50


class View(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


Number = Annotated[
    float,
    BeforeValidator(lambda value: float(value) if isinstance(value, str) else value),
    PlainSerializer(json_number, return_type=float | Literal["NaN", "Infinity", "-Infinity"]),
]
"""A float in JSON: NaN and infinities are the strings `"NaN"`, `"Infinity"` and `"-Infinity"`."""


class Page(View, Generic[T]):
    """One page of a list. Send `next` as `?after=` to get the following page."""

    data: list[T]
    has_more: bool = False
    next: str | None = None


class StatusReason(View):
    """Why a job is in its state, as its scheduler or its worker decided."""

    code: str
    message: str
    position: int | None = None
    since: datetime


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


class HeldDevice(View):
    worker: str
    index: int
    uuid: str
    name: str


class ErrorView(View):
    """The failure of the job, or of its latest attempt. `code` is an EndReason."""

    code: EndReason
    message: str
    rank: int | None = None
    exit_code: int | None = None
    traceback: str | None = None


class JobSummary(View):
    """A job as lists show it.

    `metrics` has the newest value of `train/loss`, `val/loss` and the metric that `checkpoint.monitor` names; `error`
    has no traceback. The job itself has everything.
    """

    id: str
    name: str
    trainer: str = ""
    """Empty if the service's version does not report it in lists."""
    state: JobState
    status_reason: StatusReason
    owner: str
    visibility: Visibility = "private"
    priority: int
    labels: dict[str, str]
    attempt: int
    retry_of: str | None = None
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
    """The place of the newest thing that the job stored. A stream `after` it begins with the next one."""


class JobPage(Page[JobSummary]):
    """One page of jobs. The counts are of all jobs that the filter without its `state` matches."""

    counts: dict[JobState, int] | None = None
    """How many jobs are in each state; states without any are left out. Null unless it was asked for."""
    total: int | None = None
    """How many jobs there are in all states. Null unless it was asked for."""


class RefusedAction(View):
    """A job on which an action was not done. `code` is that of the error."""

    job_id: str
    code: str
    message: str


class ActionsView(View):
    """What an action did on many jobs."""

    matched: int
    """The jobs that were meant and that the caller may change."""
    done: int
    refused: list[RefusedAction]
    """At most 50."""
    more: bool
    """Whether further jobs match the filter: repeat the request."""


class JobView(JobSummary):
    """A job, with its spec and the newest value of every metric."""

    spec: JobSpec
    card: dict[str, JsonValue] | None = Field(
        default=None, description="facts that the run reports: its size, data and speed; null until it reports them"
    )


class SpecView(View):
    """A spec with every default filled in."""

    spec: JobSpec


class EventView(View):
    seq: int
    time: datetime
    type: EventKind
    attempt: int | None
    data: dict[str, Any]


class PointView(View):
    step: int
    value: Number
    time: datetime
    attempt: int


class MetricView(PointView):
    """One point of the series `key`, as a stream sends it."""

    key: str


class PointColumns(View):
    """Points of one metric, in the order in which they were stored. Times are seconds since the epoch."""

    step: list[int]
    value: list[Number]
    time: list[float]
    attempt: list[int]


class ItemsView(View):
    """What a job has stored up to `position`, since the `position` before. `metrics` is by key."""

    job_id: str
    position: int
    metrics: dict[str, PointColumns]
    logs: list["LogLine"]
    events: list[EventView]


class StreamCursor(View):
    """Where a stream of several jobs begins: the cursor of its first event."""

    cursor: str


class ChangedView(View):
    """Something changed: read its list again."""

    changed: bool = True


class ListedView(View):
    """A job was added to the lists, moved in them, or deleted. `job_id` is null where many jobs may have."""

    job_id: str | None
    deleted: bool


class EndView(View):
    """The last event of a stream: the state in which the job ended."""

    state: JobState


class SeriesView(View):
    """A metric by step. `source` is `run` for what the script reports itself, `tensorboard` for what was read from
    TensorBoard's event files."""

    key: str
    points: list[PointView]
    source: str = "run"


class MetricsView(View):
    data: list[SeriesView]
    max_points: int | None = None
    """The most points of each series: as asked for, or fewer, because an answer has at most 100,000. None if the
    service's version does not report it."""


class LogLine(View):
    """One line of output. `line` numbers the job's lines from 1; `rank` is null for the launcher's own."""

    line: int
    time: datetime
    attempt: int
    rank: int | None
    stream: Literal["stdout", "stderr"]
    text: str


class LiveLine(View):
    """The newest text of a line that has no end so far, such as a progress bar. Empty: it has ended, or is erased.

    Nothing stores it. It is of the same rank and stream as the log line that it becomes.
    """

    job_id: str
    attempt: int
    rank: int | None
    stream: Literal["stdout", "stderr"]
    text: str


class LogPage(Page[LogLine]):
    """Lines of output. `total` is the number of the job's last line.

    With `before`, `has_more` says whether there are older lines, and `next` is null.
    """

    total: int | None = None
    """None if the service's version does not report it."""


class LogMatch(LogLine):
    """A line that a search found. `spans` are the places of its first matches: the first character of each, and the one
    behind it. Empty where only the line as a whole is known to match."""

    spans: list[tuple[int, int]] = []


class LogSearchView(Page[LogMatch]):
    """What a search found in the lines numbered from `first_line` to `last_line`, a part of a long log.

    `matches` counts the matching lines of that part, also those that `data` has no room for. `complete`: the part goes
    to the end of what was asked for; if not, later lines may match also where `data` is empty. `next`: the search goes
    on behind this line, also where `complete` is true and `data` has no room for all.
    """

    matches: int
    first_line: int
    last_line: int
    complete: bool


class RankStacksView(View):
    """The Python stacks of one rank's threads. The job may have written any text. `note` says what is missing."""

    rank: int
    text: str | None = None
    note: str | None = None


class StacksView(View):
    """The stacks of a running attempt. `taken_at` is null while the newest request waits for its answer."""

    attempt: int
    requested_at: datetime | None = None
    """The newest request; null if there was none."""
    taken_at: datetime | None = None
    ranks: list[RankStacksView] = []


class CheckpointFile(View):
    path: str
    size: int
    sha256: str


class CheckpointView(View):
    """A checkpoint. `size` and `sha256` are those of the file that `/download` sends.

    `source` is `run` for one that the script published, `captured` for a file that matched `config.checkpoints`.
    """

    id: str
    epoch: int | None
    step: int
    attempt: int
    metrics: dict[str, Number]
    files: list[CheckpointFile]
    size: int
    sha256: str
    aliases: list[str]
    created_at: datetime
    source: str = "run"


class ArtifactView(View):
    """A file that a job left. `path` is the one below `artifacts` of its run directory."""

    id: str
    path: str
    size: int
    attempt: int
    """The newest attempt that wrote it."""
    sha256: str
    created_at: datetime


class BundleView(View):
    """A bundle, or what has arrived of one."""

    sha256: str
    size: int
    """Bytes of the whole tar."""
    files: int | None
    """None as long as it is not complete."""
    state: Literal["complete", "partial"]
    received: int
    """Bytes that have arrived. An upload that was cut continues there."""
    created_at: datetime
    """The time of the upload's end, or of its start as long as it is not complete."""


class TrainerView(View):
    name: str
    description: str
    config_schema: dict[str, Any]


class HolderView(View):
    """The job that holds a device, of which another user's private job shows no more than this."""

    owner: str
    state: JobState
    since: datetime
    name: str | None = None


class DeviceProcess(View):
    """A process that holds memory of a device."""

    pid: int
    memory_bytes: int


class DeviceView(View):
    index: int
    uuid: str
    name: str
    kind: Literal["cuda", "cpu"]
    memory_bytes: int | None = None
    memory_used_bytes: int | None = None
    utilization: float | None = None
    """Share of the last sample period in which a kernel ran, 0…1. Of a CPU slot: the share of the host's processors
    that the job which holds it has used, since the worker's previous report."""
    processes: list[DeviceProcess] = []
    blocked: str | None = None
    """Why no job can use the device, although no job holds it."""
    returning: bool = False
    """Whether it is `blocked` for some seconds only, until the memory of a job that has just ended is freed."""
    job_id: str | None = None
    """The job that holds it, if the caller may see which."""
    holder: HolderView | None = None
    """Who holds it."""


class IsolationView(View):
    """What keeps a worker's jobs away from the service and from each other."""

    level: Literal["off", "basic", "landlock", "strict"]
    """`off`: nothing; `basic`: no inspection of other processes, no privileges; `landlock`: the kernel also restricts
    their files and signals; `strict`: a user for each owner, and namespaces for each attempt."""
    own_mounts: bool = False
    """Whether each attempt has shared memory and terminals of its own, and mounts where all but its own folders is
    read-only."""
    own_pids: bool = False
    """Whether each attempt sees and reaches its own processes alone, and the kernel ends them all with the first."""
    filtered: bool = False
    """Whether system calls are filtered that reach beyond the attempt: keyrings, limits and priorities of others."""
    lacks: list[str] = []
    """What this host cannot do, and what it would need."""


class StartsView(View):
    """How a worker starts jobs now."""

    mode: Literal["warm", "cold"]
    """`warm`: as forks of a process that has imported torch; `cold`: by torchrun."""
    why: str = ""
    """Why jobs start cold."""
    since: datetime | None = None
    """When the warm process was started."""
    forks: int = 0
    """Jobs that this worker's warm processes have started since the worker was started."""
    memory_bytes: int | None = None
    """Resident memory of the warm process that is not shared with files."""
    isolation: IsolationView | None = None
    """None if the worker's version does not report it."""
    cpus: int | None = None
    """CPUs that the worker's jobs may use together. None if the worker's version does not report it."""


class WorkerView(View):
    id: str
    name: str
    state: Literal["ready", "draining", "lost"]
    started_at: datetime
    seen_at: datetime
    devices: list[DeviceView]
    starts: StartsView | None = None
    """None if the worker's version does not report it."""


class DeviceColumns(View):
    """The use of a device in slots of time, oldest first. A slot without a report is left out; null is not known."""

    time: list[float]
    """The beginning of each slot, in seconds since the epoch."""
    utilization: list[float | None]
    """The mean, as in a worker's devices."""
    utilization_max: list[float | None]
    memory_used: list[int | None]
    """The mean, in bytes."""
    job_id: list[str | None]
    """The job that held it for the longest time, if the caller may see which."""


class DeviceHistory(View):
    uuid: str
    index: int
    name: str
    kind: Literal["cuda", "cpu"]
    columns: DeviceColumns


class WorkerHistoryView(View):
    """How the devices that a worker has now were used."""

    worker_id: str
    resolution_seconds: int
    """The length of a slot."""
    devices: list[DeviceHistory]


class WaitingReason(View):
    """Why a queued job has not started, as its scheduler decided."""

    code: str
    message: str
    since: datetime


class QueueEntry(View):
    """A queued job.

    `position` counts the whole queue. Workers try 1 first; they start a later job if it fits and 1 does not.
    """

    position: int
    job_id: str | None
    """None for another user's private job, as are its name and its reason."""
    name: str | None
    owner: str
    priority: int
    resources: Resources
    reason: WaitingReason | None
    not_before: datetime | None = None
    """It does not start before this time, because earlier attempts failed soon after their start."""
    created_at: datetime


class UserView(View):
    name: str
    role: Role
    created_at: datetime
    disabled_at: datetime | None = None


class TokenView(View):
    """A token, without its secret."""

    id: str
    user: str
    name: str
    scopes: list[Scope]
    created_at: datetime
    expires_at: datetime | None = None
    used_at: datetime | None = None
    """The last use, to the minute."""
    revoked_at: datetime | None = None


class NewTokenView(TokenView):
    """A token that was just made. Its text is shown this once."""

    token: str


class MeView(View):
    """Who makes the request, and what they may do with this token."""

    name: str
    role: Role
    scopes: list[Scope]
    token_id: str | None = None
    """None for the bootstrap administrator's token."""


class SessionView(MeView):
    """Who has just logged in, and what the page must send beside the cookie."""

    csrf: str
    """Every request with the cookie sends it as `X-CSRF-Token`. It is told this once."""


class FileLinkView(View):
    """A link to one file, which needs neither a header nor a cookie."""

    path: str
    """The path of the file with its query, relative to the address of the service."""
    expires_at: datetime
    """Until then a download may begin."""


class LoginCodeView(View):
    """A one-time code that opens a session in a browser on the service's machine."""

    code: str
    expires_at: datetime
    has_page: bool
    """Whether the service has the page to log in to."""


class CodeOwnerView(View):
    """For whom a login code was made."""

    name: str
    role: Role


class QuotaView(View):
    """The limits that are set for a role or a user. A limit of null is unlimited."""

    kind: Literal["role", "user"]
    name: str
    limits: dict[Resource, int | None]


class QuotaUse(View):
    """How much of a resource a user may use and uses. A limit of null is unlimited; a priority is not used up."""

    resource: Resource
    limit: int | None
    used: int | None


class UserQuotaView(View):
    """What holds for a user: their own limits, else those of their role."""

    user: str
    uses: list[QuotaUse]


class SecretView(View):
    """A secret without its value."""

    name: str
    created_at: datetime
    updated_at: datetime


class RotationView(View):
    """How many secrets were encrypted with the new key."""

    encrypted: int


class AuditView(View):
    """Who did what."""

    id: int
    time: datetime
    who: str
    """Empty for a failed login."""
    token_id: str | None
    address: str
    action: str
    object: str
    outcome: str
    """`ok`, or the code of the error."""
    request_id: str


class HealthView(View):
    status: Literal["ok"] = "ok"


class ReadyView(View):
    """The parts that the service needs. Each is `ok` or says what is wrong."""

    status: Literal["ok", "degraded", "unavailable"]
    database: str
    redis: str


class Problem(View):
    """An RFC 9457 problem."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    errors: list[FieldError] = []
    received: int | None = Field(default=None, exclude_if=lambda value: value is None)
    """Bytes that the service has of an upload. Only in a `conflict` about the place where it must continue."""

    @classmethod
    def of(cls, error: TorchyardError, *, request_id: str) -> Self:
        return cls(
            type=f"urn:torchyard:problem:{error.code}",
            title=error.title,
            status=error.status,
            detail=error.message,
            code=error.code,
            request_id=request_id,
            errors=_shown(error.errors),
            received=error.received if isinstance(error, Conflict) else None,
        )


def _shown(errors: tuple[FieldError, ...]) -> list[FieldError]:
    more = len(errors) - _MOST_ERRORS
    return [*errors[:_MOST_ERRORS], *([FieldError("", f"and {more} more")] if more > 0 else [])]
