"""A metric series as arrays, and how a long one becomes shorter while it is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# numpy is imported where it is used, because most processes of the service never read a series.


@dataclass(frozen=True)
class Groups:
    """What each entry of a series stands for, if it is not one point but some neighbours."""

    sizes: NDArray[np.int64]
    """How many points."""
    low: NDArray[np.float64]
    """The least finite value; NaN without any."""
    high: NDArray[np.float64]
    nonfinite: NDArray[np.int64]
    """How many of the points are not finite."""
    usual: int
    """How many points most of the groups have."""

    def at(self, part: slice | NDArray[np.intp]) -> Groups:
        """Returns the groups of a range, or at indices."""
        return Groups(self.sizes[part], self.low[part], self.high[part], self.nonfinite[part], self.usual)


@dataclass(frozen=True)
class SeriesColumns:
    """A series by rising step, as arrays of one length."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    """With `groups`: the mean of the finite values, NaN without any. The others are those of the group's last point."""
    times: NDArray[np.int64]
    """Microseconds since the epoch."""
    attempts: NDArray[np.int64]
    source: str | None = None
    """Where the points come from, if not from the script itself: `Batch.by_source`."""
    tails: tuple[SeriesColumns, ...] = ()
    """What later attempts hide, one for each attempt."""
    groups: Groups | None = None
    """None: each entry is a point."""

    @property
    def points(self) -> int:
        """The number of points that the entries stand for."""
        return len(self.steps) if self.groups is None else int(self.groups.sizes.sum())

    def at(self, part: slice | NDArray[np.intp]) -> SeriesColumns:
        """Returns the entries of a range, or at indices, without tails."""
        groups = None if self.groups is None else self.groups.at(part)
        columns = (self.steps[part], self.values[part], self.times[part], self.attempts[part])
        return SeriesColumns(*columns, source=self.source, groups=groups)


def grouped(series: SeriesColumns, size: int) -> SeriesColumns:
    """Returns a group for each `size` neighbouring entries, which may be groups themselves."""
    import numpy as np

    return merged_groups(series, np.arange(0, len(series.steps), size), usual=size)


def merged_groups(series: SeriesColumns, starts: NDArray[np.intp], *, usual: int = 1) -> SeriesColumns:
    """Returns the groups of neighbouring entries that begin at `starts`. `usual`: the entries of most of them."""
    import numpy as np

    each = series.groups or _single(series)
    if not len(starts):
        return replace(series, groups=each, tails=())
    sizes = np.add.reduceat(each.sizes, starts)
    nonfinite = np.add.reduceat(each.nonfinite, starts)
    low = np.fmin.reduceat(each.low, starts)
    high = np.fmax.reduceat(each.high, starts)
    # Each value takes its share before they are added: a sum may be too great for a float where the mean is not.
    known = each.sizes - each.nonfinite
    shares = known / np.repeat(np.maximum(sizes - nonfinite, 1), np.diff(starts, append=len(known)))
    means = np.add.reduceat(np.where(known > 0, series.values, 0.0) * shares, starts)
    means[sizes == nonfinite] = np.nan
    last = np.append(starts[1:], len(series.steps)) - 1
    groups = Groups(sizes, low, high, nonfinite, each.usual * usual)
    return replace(series.at(last), values=np.clip(means, low, high), groups=groups)


def extremes(series: SeriesColumns, size: int) -> SeriesColumns:
    """Returns the points of the least, the greatest and the first value that is not finite of each `size` neighbours.

    The first and the last point stay, too.
    """
    import numpy as np

    count = len(series.steps)
    if not count:
        return series
    rows = -(-count // size)
    values = np.full(rows * size, np.inf)
    values[:count] = np.where(np.isfinite(series.values), series.values, np.inf)
    low = values.reshape(rows, size).argmin(axis=1)
    values[:count] = np.where(np.isfinite(series.values), -series.values, np.inf)
    high = values.reshape(rows, size).argmin(axis=1)
    values[:] = 0.0
    values[:count] = ~np.isfinite(series.values)
    odd = values.reshape(rows, size)
    has_odd = odd.any(axis=1)
    base = np.arange(rows) * size
    indices = (base + low, base + high, (base + odd.argmax(axis=1))[has_odd], np.array([0, count - 1]))
    return series.at(np.unique(np.minimum(np.concatenate(indices), count - 1)))


def joined(parts: Sequence[SeriesColumns]) -> SeriesColumns:
    """Returns the entries of all parts, by rising step. Of points with one step the last counts; groups all stay."""
    import numpy as np

    steps, values, times, attempts = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("steps", "values", "times", "attempts")
    )
    groups = [part.groups for part in parts if part.groups is not None]
    both = None
    if groups:
        columns = (
            np.concatenate([getattr(each, name) for each in groups]) for name in ("sizes", "low", "high", "nonfinite")
        )
        both = Groups(*columns, usual=max(each.usual for each in groups))
    return in_order(SeriesColumns(steps, values, times, attempts, groups=both))


def in_order(series: SeriesColumns) -> SeriesColumns:
    """Returns the entries by rising step, as `joined` does."""
    import numpy as np

    # Most series are in order already. Equal steps are in the order in which they were stored, and the last one counts.
    steps = series.steps
    if len(steps) < 2 or (steps[1:] > steps[:-1]).all():
        return series
    order = np.argsort(steps, kind="stable")
    if series.groups is None:
        order = order[np.append(np.diff(steps[order]) != 0, True)]
    return series.at(order)


def _single(series: SeriesColumns) -> Groups:
    """Returns the points as groups of one."""
    import numpy as np

    finite = np.isfinite(series.values)
    known = np.where(finite, series.values, np.nan)
    return Groups(np.ones(len(known), dtype=np.int64), known, known, (~finite).astype(np.int64), usual=1)
