"""The JSON of what jobs store while they run: events, metrics, lines and stacks; and of the streams of them."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from torchyard.contract.states import JobState
from torchyard.contract.wire.view import Number, Page, View

EventKind = Literal["state", "message", "checkpoint", "media", "progress"]


StoredKind = Literal[EventKind, "metric", "log"]
"""The kinds of things that a job stores, and that its stream tells."""


StreamTopic = Literal["jobs", "queue", "workers"]
"""What a stream of several jobs tells besides: that lists have changed."""


StreamKind = Literal[StoredKind, "live", "end"]
"""The kinds of a stream's events: `live` and `end`, which comes last, are not stored."""


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
    """Points of one metric, in storage order. Times are seconds since the epoch."""

    step: list[int]
    value: list[Number]
    time: list[float]
    attempt: list[int]


class ItemsView(View):
    """The items that a job stored between the previous `position` and this one. `metrics` is by key."""

    job_id: str
    position: int
    metrics: dict[str, PointColumns]
    logs: list["LogLine"]
    events: list[EventView]


class StreamCursor(View):
    """The first event of a stream of several jobs: its cursor."""

    cursor: str


class ChangedView(View):
    """The list has changed: read it again."""

    changed: bool = True


class ListedView(View):
    """A job was added to a list, moved, or deleted. `job_id` is null if this may concern many jobs."""

    job_id: str | None
    deleted: bool


class EndView(View):
    """The last event of a stream: the state in which the job ended."""

    state: JobState


class SeriesView(View):
    """A metric by step. `source` is `run` for `run.log`; `tensorboard`, `wandb` or `mlflow` for their files; and `log`
    for `metrics.patterns`.
    """

    key: str
    points: list[PointView]
    source: str = "run"


class MetricsView(View):
    data: list[SeriesView]
    max_points: int
    """Maximum number of points in each metric: as requested, or fewer, as an answer has at most 100,000."""


class LogCurvesView(View):
    """The metrics that were made from a job's log."""

    keys: list[str] = Field(description="the new metrics")
    known: list[str] = Field(description="metrics in the log that existed before; they did not change")
    points: int
    complete: bool = Field(description="false if a limit stopped the search")


class LogLine(View):
    """A line of output. `line` counts the job's lines from 1. `rank` is null for lines of the launcher."""

    line: int
    time: datetime
    attempt: int
    rank: int | None
    stream: Literal["stdout", "stderr"]
    text: str


class LiveLine(View):
    """The text of an unfinished line, such as a progress bar. An empty text means that the line has ended.

    It is not stored. When the line ends, it comes as a log line of the same rank and stream.
    """

    job_id: str
    attempt: int
    rank: int | None
    stream: Literal["stdout", "stderr"]
    text: str


class LogPage(Page[LogLine]):
    """A page of output. `total` is the number of the job's last line.

    With `before`, `has_more` is true if there are older lines, and `next` is null.
    """

    total: int


class LogMatch(LogLine):
    """A line that matches a search. `spans` has the start and end of its first matches, in characters; empty if only
    the whole line is known to match.
    """

    spans: list[tuple[int, int]] = []


class LogSearchView(Page[LogMatch]):
    """The matches in the lines `first_line` to `last_line`: the part of the log that this request searched.

    `matches` counts all matching lines of this part; `data` has at most `limit` of them. `complete` is true if the part
    reaches the end of the log. Send `next` as `after` to continue, until it is null.
    """

    matches: int
    first_line: int
    last_line: int
    complete: bool


class RankStacksView(View):
    """The Python stacks of one rank's threads. Without `text`, `note` has the reason. The job may have written any
    text.
    """

    rank: int
    text: str | None = None
    note: str | None = None


class StacksView(View):
    """The stacks of a running attempt. `taken_at` is null until they arrive."""

    attempt: int
    requested_at: datetime | None = None
    """Time of the newest request; null if there was none."""
    taken_at: datetime | None = None
    ranks: list[RankStacksView] = []
