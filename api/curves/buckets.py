"""Reduces a series to buckets of neighbouring points, and smooths it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from store.output.series_columns import SeriesColumns, merged_groups

Values = NDArray[np.float64]
Indices = NDArray[np.intp]

_SCALE = 2.0**-64


@dataclass(frozen=True)
class Buckets:
    """A summary of each bucket, in arrays of equal length. `mean`, `low` and `high` are NaN without finite values."""

    last: Indices
    """The index of its last value."""
    mean: Values
    low: Values
    high: Values
    nonfinite: NDArray[np.intp]


def starts(attempts: NDArray[np.int64], max_points: int) -> Indices:
    """Returns where each of at most `max_points` buckets begins, of a series that is not empty.

    They have equal numbers of points, but for the last one of each attempt: none has points of two attempts, unless
    the series changes from one to another so often that there would be too many.
    """
    count = len(attempts)
    seams = np.concatenate([[0], np.flatnonzero(np.diff(attempts)) + 1])
    if len(seams) > max_points:
        seams = seams[:1]
    size = -(-count // (max_points - len(seams) + 1))
    ends = np.append(seams[1:], count)
    return np.concatenate([np.arange(begin, end, size) for begin, end in zip(seams, ends, strict=True)])


def reduce(values: Values, starts: Indices) -> Buckets:
    """Returns the buckets that begin at `starts`."""
    finite = np.isfinite(values)
    sizes = np.diff(starts, append=len(values))
    nonfinite = sizes - np.add.reduceat(finite, starts, dtype=np.intp)
    low = np.minimum.reduceat(np.where(finite, values, np.inf), starts)
    high = np.maximum.reduceat(np.where(finite, values, -np.inf), starts)
    mean = _means(np.where(finite, values, 0.0), starts, sizes - nonfinite)
    empty = nonfinite == sizes
    low[empty] = high[empty] = mean[empty] = np.nan
    # Rounding may move the mean of equal values beyond them.
    return Buckets(starts + sizes - 1, np.clip(mean, low, high), low, high, nonfinite)


def of_series(series: SeriesColumns, starts: Indices) -> Buckets:
    """Returns the buckets of a series' points, or of its groups, that begin at `starts`."""
    if series.groups is None:
        return reduce(series.values, starts)
    sizes = np.diff(starts, append=len(series.steps))
    merged = merged_groups(series, starts)
    assert merged.groups is not None
    return Buckets(
        starts + sizes - 1,
        merged.values,
        merged.groups.low,
        merged.groups.high,
        merged.groups.nonfinite.astype(np.intp),
    )


def ema(values: Values, smooth: float) -> Values:
    """Returns the exponential moving average at each value, debiased as TensorBoard's; `smooth` is above 0, below 1.

    Values that are not finite count for nothing: the average stays as it was. It is NaN before the first finite value.
    """
    finite = np.isfinite(values)
    known = values[finite]
    if not len(known):
        return np.full(len(values), np.nan)
    total = known * (1 - smooth)
    # Each round doubles the number of values that each total includes.
    reach, weight = 1, smooth
    while reach < len(known) and weight > 0:
        total[reach:] += weight * total[:-reach]
        reach, weight = 2 * reach, weight * weight
    bias = -np.expm1(np.arange(1, len(known) + 1) * np.log(smooth))
    with np.errstate(over="ignore"):
        # An average lies between the values; rounding may move it beyond them.
        smoothed = np.clip(total / bias, known.min(), known.max())
    indices = np.cumsum(finite)
    return np.concatenate([[np.nan], smoothed])[indices]


def _means(values: Values, starts: Indices, counts: NDArray[np.intp]) -> Values:
    counts = np.maximum(counts, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        means = np.add.reduceat(values, starts) / counts
    # A sum may be too great for a float where the mean is not.
    great = ~np.isfinite(means)
    if great.any():
        means[great] = (np.add.reduceat(values * _SCALE, starts) / counts)[great] / _SCALE
    return means
