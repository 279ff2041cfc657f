"""Thins the metric points of an attempt that has stored as many as it may: its curves go on, in few points."""

from collections.abc import Sequence
from dataclasses import replace
import time

from store.facts.output import MAX_SERIES, Batch
from store.facts.telemetry import MetricPoint

_LEAST_S = 60.0
"""The shortest time between two batches with points."""
_POINT_S = 0.6
"""What each point adds to that time, so that many metrics are stored less often."""


class Thinning:
    """Keeps the newest point of each metric until it is due.

    The caller stores what `take` returns, then calls `stored`.
    """

    def __init__(self) -> None:
        self._points: dict[str, MetricPoint] = {}
        self._curves: dict[str, MetricPoint] = {}
        self._logged: dict[str, MetricPoint] = {}
        self._next = time.monotonic() + _LEAST_S
        self._taken = False

    def take(self, batch: Batch, *, final: bool = False) -> Batch:
        """Returns the batch without its points, or with the newest of each metric if they are due or it is `final`."""
        _keep(self._points, batch.points)
        _keep(self._curves, batch.curves)
        _keep(self._logged, batch.logged)
        self._taken = final or time.monotonic() >= self._next
        kept = (self._points, self._curves, self._logged) if self._taken else ({}, {}, {})
        points, curves, logged = (list(each.values()) for each in kept)
        return replace(batch, points=points, curves=curves, logged=logged)

    def stored(self) -> None:
        """Notes that what was taken last is stored."""
        if self._taken:
            count = len(self._points) + len(self._curves) + len(self._logged)
            self._next = time.monotonic() + max(_LEAST_S, _POINT_S * count)
            self._points.clear()
            self._curves.clear()
            self._logged.clear()
            self._taken = False

    def __bool__(self) -> bool:
        """Returns whether points wait to be stored."""
        return bool(self._points or self._curves or self._logged)


def _keep(kept: dict[str, MetricPoint], new: Sequence[MetricPoint]) -> None:
    for point in new:
        if point.key in kept or len(kept) < MAX_SERIES:
            kept[point.key] = point
