"""What attempts report and leave, as the store has it, and how a worker brings it.

Times are microseconds since the epoch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple, TypedDict

from torchyard.contract.attempts.events import Remeasured
from torchyard.contract.attempts.records import Manifest, ManifestFile
from torchyard.contract.telemetry.views import EventView, LogLine, StoredKind

LOG = "log"
"""The source of a series that was read from the lines that the job wrote, by the patterns of its spec."""
MAX_SERIES = 2000
"""The most series of one job."""
END = 2**63 - 1
"""The greatest possible step, or number of a line."""


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One value of one metric. `time` is by the rank's clock."""

    key: str
    step: int
    value: float
    time: int


@dataclass(frozen=True, slots=True)
class Lines:
    """Neighbouring lines of one time, separated by line ends. `first`: the number of the first."""

    first: int
    time: int
    text: str


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Which lines are wanted: those that meet every condition that is set."""

    rank: int | None = None
    launcher: bool = False
    """Only lines that no rank has written."""
    attempt: int | None = None
    stream: str | None = None


EVERY_LINE = LogFilter()


@dataclass(frozen=True, slots=True)
class TimelineItem:
    """One event, point or log line of a job."""

    position: int
    kind: StoredKind
    attempt: int | None
    content: EventView | MetricPoint | LogLine


class Answer(TypedDict):
    """The stacks that a worker found."""

    requested_at: int
    taken_at: int
    ranks: list[dict[str, Any]]
    """A `torchyard.contract.telemetry.views.RankStacksView` each."""


class Stacks(NamedTuple):
    """What is known of the stacks of the attempt that runs."""

    attempt: int
    requested_at: int | None
    """The time of the request that waits for its answer."""
    answer: Answer | None


@dataclass(frozen=True, slots=True)
class PictureFacts:
    """A picture whose blob is stored. `part` is a `torchyard.contract.media.kinds.MediaPart`."""

    part: str
    media_type: str
    size: int
    sha256: str
    width: int
    height: int


@dataclass(frozen=True)
class NewMedia:
    """An item that an attempt has written."""

    key: str
    kind: str
    step: int
    number: int
    _: KW_ONLY
    caption: str | None = None
    classes: Sequence[str] | None = None
    data: Mapping[str, Any] | None = None
    pictures: Sequence[PictureFacts] = ()


@dataclass(frozen=True)
class MediaFilter:
    """Of which keys and kinds, and from which step to which. Empty and None: all."""

    keys: Sequence[str] = ()
    kinds: Sequence[str] = ()
    from_step: int | None = None
    to_step: int | None = None


@dataclass(frozen=True)
class MediaPosition:
    """The position of an item in the list of a job's."""

    key: str
    step: int
    number: int


@dataclass(frozen=True)
class NewEvent:
    """An event that the relay read from the attempt. `time` is in microseconds since the epoch."""

    type: str
    data: dict[str, Any]
    time: int
    limited: bool = False
    """Whether it is a message of the job, or about what it wrote. These are stored up to a limit."""


@dataclass(frozen=True, slots=True)
class NewLines:
    """Whole lines of one stream, without line ends or NULs. `rank` is None for the launcher's own output."""

    rank: int | None
    stream: str
    lines: list[str]


@dataclass(frozen=True, kw_only=True)
class CapturedFile:
    """A file that a script wrote, as it is listed in a checkpoint. `path` is its own below its root, if it can be."""

    path: str
    size: int
    sha256: str
    root: str | None = None
    """`artifacts` if the path is one below that folder of the run directory; None: below the working folder."""
    modified_ns: int | None = None
    """Its modification time. None: it has a path that cannot be stored, and cannot be put back."""
    links: list[str] = field(default_factory=list[str])
    """Its other names, as paths below the same root."""

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields that say something, as rows have them."""
        beside = {"root": self.root, "modified_ns": self.modified_ns, "links": self.links}
        known = {name: value for name, value in beside.items() if value}
        return {"path": self.path, "size": self.size, "sha256": self.sha256, **known}


@dataclass(frozen=True)
class NewCheckpoint:
    """A checkpoint whose blobs are stored. `files` holds the sizes and digests that the relay computed."""

    name: str
    manifest: Manifest
    files: Sequence[ManifestFile | CapturedFile]
    source: str | None = None
    """None if the script published it."""
    saved_at: int = 0
    """When it was saved, in nanoseconds."""
    damaged: bool = False
    """Whether it is not whole."""

    @property
    def entries(self) -> list[dict[str, Any]]:
        """The files as rows have them."""
        return [file.to_dict() for file in self.files]


@dataclass(frozen=True)
class NewArtifact:
    """A file whose blob is stored. Of the working folder, its path begins with `KEPT`."""

    path: str
    size: int
    sha256: str
    modified_ns: int | None = None
    """When it was modified, in nanoseconds since the epoch by the host's clock."""
    asked: bool = False
    """Whether somebody asked for it, by `torchyard keep`."""


@dataclass(frozen=True)
class JobPackagesFacts:
    """Versions by the names of packages, and the attempt that had them."""

    attempt: int
    packages: dict[str, str]


@dataclass
class Batch:
    """What the relay reads between two transactions. It is stored as a whole or not at all."""

    offsets: dict[str, int]
    """Bytes of each file that are stored after this batch."""
    points: list[MetricPoint] = field(default_factory=list[MetricPoint])
    curves: dict[str, list[MetricPoint]] = field(default_factory=dict[str, list[MetricPoint]])
    """Points that were read from files of TensorBoard, wandb and MLflow, by this source."""
    logged: list[MetricPoint] = field(default_factory=list[MetricPoint])
    """Points that were read from the lines of the log."""
    lines: list[NewLines] = field(default_factory=list[NewLines])
    events: list[NewEvent] = field(default_factory=list[NewEvent])
    checkpoints: list[NewCheckpoint] = field(default_factory=list[NewCheckpoint])
    artifacts: list[NewArtifact] = field(default_factory=list[NewArtifact])
    media: list[NewMedia] = field(default_factory=list[NewMedia])
    remeasured: Remeasured | None = None
    """The last one counts: a run measures one checkpoint again."""
    progress: dict[str, Any] | None = None
    card: dict[str, Any] | None = None
    packages: dict[str, str] | None = None
    """Versions by names."""
    reports: bool = False
    """Whether the attempt's event log, by which a stall is measured, had something new."""
    lag_us: int = 0
    """Age of its oldest line when it was read, in microseconds."""

    @property
    def by_source(self) -> list[tuple[str | None, list[MetricPoint]]]:
        """All points by the source of their metrics, that of the script itself first."""
        return [(None, self.points), *self.curves.items(), (LOG, self.logged)]

    def change_points(self, change: Callable[[list[MetricPoint]], list[MetricPoint]]) -> None:
        """Has each list of points be what `change` returns of it."""
        self.points, self.logged = change(self.points), change(self.logged)
        self.curves = {source: change(points) for source, points in self.curves.items()}


@dataclass(frozen=True)
class StoredArtifact:
    """What a worker knows of a file that is stored already."""

    path: str
    attempt: int
    size: int
    modified_ns: int | None = None
    asked: bool = False


@dataclass(frozen=True)
class Room:
    """What is stored of a job, and how many bytes its owner may store besides; None without a limit."""

    stored: Sequence[StoredArtifact]
    left: int | None
    media_bytes: int = 0
    """Bytes of what the job's runs show."""


@dataclass(frozen=True)
class OutputLimits:
    """What of one attempt's output is stored. None: all."""

    log_bytes: int | None = 64 << 20
    message_bytes: int | None = 4 << 20
    point_bytes: int | None = 128 << 20
    """Of all attempts of the job. Beyond these, a worker brings few points."""
    checkpoints: int | None = 10_000
    """Checkpoints of the attempt that are stored at will; then one a minute."""
    versions: int | None = 3
    """Whole captured checkpoints of one file that are kept."""
    artifacts: int | None = 1000
    """Files of one job."""
    media: int | None = 5000
    """Items of one job that its runs show."""
    artifact_bytes: int | None = 10 << 30
    """Bytes of these files and items."""
    kept_bytes: int | None = 64 << 20
    """Bytes of the files of one job's working folder that are kept without a pattern."""


DEFAULTS = OutputLimits()


@dataclass(frozen=True)
class TrimLimits:
    """What is kept of a finished job. None keeps everything."""

    logs: timedelta | None = None
    """Time after the job's end."""
    log_bytes: int | None = None
    events: timedelta | None = None
    """Time after the job's end. Changes of state and the service's own messages are always kept."""
    event_bytes: int | None = None
