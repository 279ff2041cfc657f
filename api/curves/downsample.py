"""Reduces a series to fewer points that draw the same curve."""

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Indices = NDArray[np.intp]


def select(values: Values, max_points: int) -> Indices:
    """Returns rising indices of at most `max_points` (2 or more) values: the first, the last, and the least and the
    greatest finite value of each bucket between them. If there are NaN or infinite values, the first of each bucket is
    selected too; they are never its least or greatest.
    """
    count = len(values)
    if count <= max_points:
        return np.arange(count)
    finite = np.isfinite(values)
    nonfinite = max_points >= 5 and not finite[1:-1].all()
    starts = bucket_starts(count, buckets=(max_points - 2) // (3 if nonfinite else 2))
    sizes = np.diff(starts, append=count - 1)
    low = np.where(finite, values, np.inf)
    high = np.where(finite, values, -np.inf)
    picked = [
        np.array([0, count - 1]),
        _first_of_each(finite & (low == _spread(np.minimum, low, starts, sizes)), starts),
        _first_of_each(finite & (high == _spread(np.maximum, high, starts, sizes)), starts),
    ]
    if nonfinite:
        picked.append(_first_of_each(~finite, starts))
    return np.unique(np.concatenate(picked))


def bucket_starts(count: int, *, buckets: int) -> Indices:
    """Returns the start of each bucket. Buckets are equal shares of the values between the first and the last."""
    return 1 + (np.arange(buckets) * (count - 2)) // max(buckets, 1)


def _spread(extreme: np.ufunc, values: Values, starts: Indices, sizes: Indices) -> Values:
    """Returns for each value the extreme of its bucket; for the first and the last value, themselves."""
    if not len(starts):
        return values
    inner = np.repeat(extreme.reduceat(values[:-1], starts), sizes)
    return np.concatenate([values[:1], inner, values[-1:]])


def _first_of_each(wanted: NDArray[np.bool_], starts: Indices) -> Indices:
    """Returns the first wanted index of each bucket that has one."""
    if not len(starts):
        return starts
    indices = np.flatnonzero(wanted[1:-1]) + 1
    bucket = np.searchsorted(starts, indices, side="right")
    _, first = np.unique(bucket, return_index=True)
    return indices[first]
