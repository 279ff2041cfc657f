"""Turns series into curves: their points or, of too many, buckets with mean, least and greatest value, and average."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from api.curves.shares import share
from store.output.series_columns import SeriesColumns
from torchyard.contract.telemetry.curves import CurveColumns, CurveView

if TYPE_CHECKING:
    from api.curves.buckets import Buckets, Values


@dataclass(frozen=True)
class Shape:
    """What to answer of each curve: the range of steps, the most entries, and its smoothing (0: none)."""

    max_points: int
    from_step: int | None = None
    to_step: int | None = None
    smooth: float = 0.0
    smooth_points: int | None = None
    """The points of a curve for which `smooth` is the weight; None: of any."""


def curves(job_id: str, key: str, series: SeriesColumns, shape: Shape) -> Iterator[CurveView]:
    """Yields the curve of a series, and one of each tail that has points in the range.

    All tails together have at most as many entries as the curve may have; the oldest are left out first.
    """
    # Imported here, because numpy is slow to import and most processes never need it.
    from api.curves import buckets

    part = _part(series, shape)
    weight = _weight(series, shape)
    smooth = weight if series.groups is None else weight**series.groups.usual
    ema = buckets.ema(series.values, smooth)[part] if smooth else series.values[part] if shape.smooth else None
    curve = _curve(job_id, key, series.at(part), shape.max_points, ema=ema)
    yield curve.model_copy(update={"smooth": weight or None})
    tails = [tail.at(_part(tail, shape)) for tail in series.tails]
    shown = [tail for tail in tails if len(tail.steps)][-(shape.max_points // 2) :]
    most = share([len(tail.steps) for tail in shown], total=shape.max_points)
    for tail in shown:
        yield _curve(job_id, key, tail, most, source=series.source, hidden=True)


def _weight(series: SeriesColumns, shape: Shape) -> float:
    """Returns the weight of the past of one point. With `smooth_points`, it changes when the points have doubled."""
    if not shape.smooth or shape.smooth_points is None:
        return shape.smooth
    points = 1 << max(0, series.points.bit_length() - 1)
    return shape.smooth ** (shape.smooth_points / points)


def _part(series: SeriesColumns, shape: Shape) -> slice:
    """Returns the indices of the points in the range."""
    begin = 0 if shape.from_step is None else int(series.steps.searchsorted(shape.from_step, side="left"))
    end = len(series.steps) if shape.to_step is None else int(series.steps.searchsorted(shape.to_step, side="right"))
    return slice(begin, max(begin, end))


def _curve(
    job_id: str,
    key: str,
    series: SeriesColumns,
    max_points: int,
    *,
    ema: Values | None = None,
    source: str | None = None,
    hidden: bool = False,
) -> CurveView:
    from api.curves import buckets

    reduced = None
    if len(series.steps) > max_points or (series.groups is not None and len(series.steps)):
        reduced = buckets.of_series(series, buckets.starts(series.attempts, max_points))
    return CurveView(
        job_id=job_id,
        key=key,
        source=series.source or source or "run",
        points=series.points,
        steps_per_bucket=None if reduced is None else _steps_per_bucket(series, reduced),
        hidden=hidden,
        columns=_points(series, ema) if reduced is None else _buckets(series, ema, reduced),
    )


def _points(series: SeriesColumns, ema: Values | None) -> CurveColumns:
    import numpy as np

    finite = np.isfinite(series.values)
    return CurveColumns.model_construct(
        step=series.steps.tolist(),
        time=_seconds(series),
        attempt=series.attempts.tolist(),
        mean=series.values.tolist(),
        ema=None if ema is None else _or_none(ema),
        nonfinite=None if finite.all() else (~finite).astype(np.intp).tolist(),
    )


def _buckets(series: SeriesColumns, ema: Values | None, reduced: Buckets) -> CurveColumns:
    last = series.at(reduced.last)
    return CurveColumns.model_construct(  # unchecked: a check holds up all threads for as long as it takes
        step=last.steps.tolist(),
        time=_seconds(last),
        attempt=last.attempts.tolist(),
        mean=_or_none(reduced.mean),
        min=_or_none(reduced.low),
        max=_or_none(reduced.high),
        ema=None if ema is None else _or_none(ema[reduced.last]),
        nonfinite=reduced.nonfinite.tolist() if reduced.nonfinite.any() else None,
    )


def _steps_per_bucket(series: SeriesColumns, reduced: Buckets) -> int:
    steps = int(series.steps[-1]) - int(series.steps[0]) + 1
    return -(-steps // len(reduced.last))


def _seconds(series: SeriesColumns) -> list[float]:
    return (series.times / 1_000_000).round(3).tolist()


def _or_none(values: Values) -> list[float | None]:
    """Returns the values as a list, None for NaN."""
    return [None if value != value else value for value in values.tolist()]  # noqa: PLR0124 - NaN differs from itself
