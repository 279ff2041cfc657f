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
    """Of a bucket's last point, as are `time` and `attempt`."""
    time: list[float]
    """Seconds since the epoch."""
    attempt: list[int]
    mean: Column
    """The value of a point; of a bucket's finite points the mean, null if it has none."""
    min: Column | None = None
    """Of the bucket's finite points, as is `max`; null if each place is a point."""
    max: Column | None = None
    ema: Column | None = None
    """The moving average at the bucket's last point, over all points from the first of the series. Null without
    `smooth`, and before the first finite point."""
    nonfinite: list[int] | None = None
    """How many points of the bucket are NaN or infinite; null if none of the curve is."""


class CurveView(View):
    """A curve of a metric. With `hidden`, the points of one attempt that a later attempt logged again."""

    job_id: str
    key: str
    source: str = "run"
    points: int
    """The points in the range."""
    steps_per_bucket: int | None = None
    """The steps that a bucket covers, in the mean; null if each place is a point."""
    smooth: float | None = None
    """The weight of the past in its average, of one point. Null without an average."""
    hidden: bool = False
    columns: CurveColumns


class KeyView(View):
    """A metric of a job. `count` is its stored points in all attempts; `latest` is the newest value."""

    key: str
    count: int
    source: str = "run"
    latest: Number
    low: float | None = None
    """The least finite value that was logged, also at steps that a later attempt repeated."""
    high: float | None = None
    """The greatest one."""


class JobKeys(View):
    """The metrics of a job. A stream `after` this `position` continues where the answer ends."""

    job_id: str
    position: int
    keys: list[KeyView]


class CurvesView(View):
    jobs: list[JobKeys]
    series: list[CurveView]
    max_points: int
    """The most places of each curve: as asked for, or fewer, because an answer has at most 100,000."""
