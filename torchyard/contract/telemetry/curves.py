"""The JSON of metrics in columns: several jobs at once, in buckets that say what they leave out."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, PlainSerializer

from torchyard.contract.wire.codec import json_number
from torchyard.contract.wire.view import Number, View


def _parsed(column: object) -> object:
    if not isinstance(column, list):
        return column
    return [float(value) if isinstance(value, str) else value for value in column]  # pyright: ignore[reportUnknownVariableType]


def _encoded(column: Sequence[float | None]) -> list[float | str | None]:
    return [None if value is None else json_number(value) for value in column]


Column = Annotated[
    list[float | None],
    BeforeValidator(_parsed),
    PlainSerializer(_encoded, return_type=list[float | Literal["NaN", "Infinity", "-Infinity"] | None]),
]
"""Floats of which JSON has no number for some, which are strings then, and some of which may be missing."""


class CurveColumns(View):
    """A curve by step, as columns of equal length. Each index is a point, or a bucket of points."""

    step: list[int]
    """Step of the point, or of the bucket's last point. So are `time` and `attempt`."""
    time: list[float]
    """Seconds since the epoch."""
    attempt: list[int]
    mean: Column
    """The value of the point, or the mean of the bucket's finite points; null if there are none."""
    min: Column | None = None
    """Minimum of the bucket's finite points. `min` and `max` are null for single points."""
    max: Column | None = None
    ema: Column | None = None
    """Moving average at the last point, over all points from the first of the metric. Null without `smooth`, and before
    the first finite point.
    """
    nonfinite: list[int] | None = None
    """Number of NaN and infinite points in each bucket; null if the curve has none."""


class CurveView(View):
    """A curve of a metric. With `hidden`, the points of one attempt that a later attempt logged again."""

    job_id: str
    key: str
    source: str = "run"
    points: int
    """Number of points in the range."""
    steps_per_bucket: int | None = None
    """Mean number of steps in a bucket; null for single points."""
    smooth: float | None = None
    """Weight of earlier points in the average; null without an average."""
    hidden: bool = False
    columns: CurveColumns


class KeyView(View):
    """A metric of a job. `count` is its stored points in all attempts; `latest` is the newest value."""

    key: str
    count: int
    source: str = "run"
    latest: Number
    low: float | None = None
    """The minimum of all finite values of all attempts."""
    high: float | None = None
    """The maximum of all finite values of all attempts."""


class JobKeys(View):
    """The metrics of a job. A stream `after` this `position` continues where the answer ends."""

    job_id: str
    position: int
    keys: list[KeyView]


class CurvesView(View):
    jobs: list[JobKeys]
    series: list[CurveView]
    max_points: int
    """Maximum number of points or buckets in each curve: as requested, or fewer, as an answer has at most 100,000."""
