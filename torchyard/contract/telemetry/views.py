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
    """A metric by step. `source` is `run` for what the script reports itself, `tensorboard`, `wandb` and `mlflow` for
    what was read from their files, `log` for what `metrics.patterns` found in the lines."""

    key: str
    points: list[PointView]
    source: str = "run"


class MetricsView(View):
    data: list[SeriesView]
    max_points: int
    """The most points of each series: as asked for, or fewer, because an answer has at most 100,000."""


class LogCurvesView(View):
    """The curves that were made of a job's stored lines."""

    keys: list[str] = Field(description="the metrics that have a curve now")
    known: list[str] = Field(description="those of the lines that had one before, and got no points")
    points: int
    complete: bool = Field(description="false: the lines are too many, or take too long, to search all of them")


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

    total: int


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
