"""What attempts report: events, metric points, lines of output, stacks. Times are microseconds since the epoch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

from torchyard.contract.views.telemetry import StoredKind

END = 2**63 - 1
"""The greatest possible step, or number of a line."""


@dataclass(frozen=True, slots=True)
class EventFacts:
    """An event of a job. `seq` is its position in the job's timeline."""

    seq: int
    time: int
    type: str
    attempt: int | None
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One value of one metric. `time` is by the rank's clock."""

    key: str
    step: int
    value: float
    time: int


@dataclass(frozen=True, slots=True)
class Line:
    """A line of output. `rank` is None for the launcher's own."""

    line: int
    time: int
    attempt: int
    rank: int | None
    stream: str
    text: str


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
    content: EventFacts | MetricPoint | Line


@dataclass(frozen=True)
class KnownSeries:
    """A metric of a job. `source`: where its points come from, if not from the script itself."""

    key: str
    points: int
    """How many are stored."""
    source: str | None
    latest: float
    low: float | None
    high: float | None


class Answer(TypedDict):
    """The stacks that a worker found."""

    requested_at: int
    taken_at: int
    ranks: list[dict[str, Any]]
    """A `torchyard.contract.views.telemetry.RankStacksView` each."""


class Stacks(NamedTuple):
    """What is known of the stacks of the attempt that runs."""

    attempt: int
    requested_at: int | None
    """The time of the request that waits for its answer."""
    answer: Answer | None
