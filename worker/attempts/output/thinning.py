"""Thins the metric points of an attempt that has stored as many as it may: its curves go on, in few points."""

from collections.abc import Sequence
from dataclasses import replace
import time

from store.worker.records import LOG, MAX_SERIES, Batch, MetricPoint

_LEAST_S = 60.0
"""The shortest time between two batches with points."""
_POINT_S = 0.6
"""What each point adds to that time, so that many metrics are stored less often."""


class Thinning:
    """Keeps the newest point of each metric until it is due.

    The caller stores what `take` returns, then calls `stored`.
    """

    def __init__(self) -> None:
        self._kept: dict[str | None, dict[str, MetricPoint]] = {}
        """By source and metric."""
        self._next = time.monotonic() + _LEAST_S
        self._taken = False

    def take(self, batch: Batch, *, final: bool = False) -> Batch:
        """Returns the batch without its points, or with the newest of each metric if they are due or it is `final`."""
        for source, new in batch.by_source:
            _keep(self._kept.setdefault(source, {}), new)
        self._taken = final or time.monotonic() >= self._next
        kept = {source: list(points.values()) if self._taken else [] for source, points in self._kept.items()}
        points, logged = kept.pop(None), kept.pop(LOG)
        curves = {source: found for source, found in kept.items() if source is not None}
        return replace(batch, points=points, curves=curves, logged=logged)

    def stored(self) -> None:
        """Notes that what was taken last is stored."""
        if self._taken:
            count = sum(map(len, self._kept.values()))
            self._next = time.monotonic() + max(_LEAST_S, _POINT_S * count)
            self._kept.clear()
            self._taken = False

    def __bool__(self) -> bool:
        """Returns whether points wait to be stored."""
        return any(self._kept.values())


def _keep(kept: dict[str, MetricPoint], new: Sequence[MetricPoint]) -> None:
    for point in new:
        if point.key in kept or len(kept) < MAX_SERIES:
            kept[point.key] = point
