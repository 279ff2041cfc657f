"""Decides when the next replay of the line may begin. Each has the processor time of the last one to rest for."""

from store.cluster.cluster_mark import ClusterMark

LEAST_REST_S = 15.0
"""Whoever submits looks for an estimate about so long: a newer one does not tell much more."""
UNCHANGED_REST = 1000
"""With nothing changed, replays take a tenth of a percent of a core. All else that an idle worker does takes 0.9.

They go on: what runs comes to its end earlier or later than believed.
"""
CHANGED_REST = 20
"""With changes all the time, replays take five percent of a core."""


class Pace:
    """Remembers the last replay. Times are seconds of the caller's clock."""

    def __init__(self) -> None:
        self._ended: float | None = None
        self._cost_s = 0.0
        self._mark: ClusterMark | None = None

    @property
    def rested_at(self) -> float:
        """When another one may begin if anything has changed."""
        return 0.0 if self._ended is None else self._ended + max(LEAST_REST_S, CHANGED_REST * self._cost_s)

    def note(self, now: float, *, cost_s: float, mark: ClusterMark | None) -> None:
        """Notes that a replay has ended, which took `cost_s` seconds of processor time.

        `mark`: what it has seen; None: it came to no result.
        """
        self._ended, self._cost_s, self._mark = now, cost_s, mark

    def may_begin(self, now: float, mark: ClusterMark) -> bool:
        """Returns whether another one may begin, which would see `mark`."""
        if self._ended is None or mark != self._mark:
            return now >= self.rested_at
        return now >= self._ended + max(LEAST_REST_S, UNCHANGED_REST * self._cost_s)
