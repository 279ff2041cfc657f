"""Estimates the starts of jobs while the plan runs a trace, with a replay from time to time, and records the starts."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace

from bench.scheduling.fair import Fair
from bench.scheduling.simulator import US, Cluster
from scheduling.calibration import UNTAUGHT, Interval, Track, interval, scored
from scheduling.line import Line
from scheduling.replay import Reached, replay
from scheduling.snapshot import Snapshot

MOST = 200
"""The number of queued jobs in a replay."""
HOUR_US = 3600 * US
EVERY_US = HOUR_US
"""The shortest time between two replays: the next is at the first event after it."""
BY_LIMITS_EVERY = 4
"""One replay in this many is also made by limits, which takes longer."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """An estimate of which the job has started."""

    error_us: int
    error_by_limits_us: int | None
    """None: there was no replay by limits beside this one."""
    width_us: int | None
    """Of its interval. None: there was none."""
    held: bool | None


@dataclass(frozen=True, slots=True)
class _Said:
    at: int
    wait_us: int
    by_limits_us: int | None
    interval: Interval


class Forecasting(Fair):
    """The plan. The first estimate of each queueing counts and one an hour, as those of the workers do."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: list[Outcome] = []
        self._tracks: dict[int, Track] = {}
        self._pending: dict[str, list[_Said]] = {}
        """By job, what was said since it was queued."""
        self._next_at = 0
        self._replays = 0

    def decide(self, cluster: Cluster) -> int | None:
        again_at = super().decide(cluster)
        for job_id in sorted(self._pending.keys() - cluster.queue.keys()):
            for said in self._pending.pop(job_id):
                self._score(said, cluster.now - said.at)
        if cluster.queue and cluster.now >= self._next_at:
            self._next_at = cluster.now + EVERY_US
            self._estimate(cluster)
        return again_at

    def _estimate(self, cluster: Cluster) -> None:
        snapshot, now = self._first_in_line(cluster), cluster.now
        due = {job.id for job in snapshot.line if self._is_due(job.id, now)}
        starts = drained(replay(snapshot, only=due))
        compares = self._replays % BY_LIMITS_EVERY == 0
        by_limits = drained(replay(snapshot, only=due, by_limits=True)) if compares else {}
        self._replays += 1
        for job_id in due:
            wait_us = starts[job_id] - now
            by_limits_us = by_limits[job_id] - now if compares else None
            said = _Said(now, wait_us, by_limits_us, interval(self._tracks, wait_us))
            self._pending.setdefault(job_id, []).append(said)

    def _is_due(self, job_id: str, now: int) -> bool:
        said = self._pending.get(job_id)
        return not said or (now - said[0].at) // HOUR_US > (said[-1].at - said[0].at) // HOUR_US

    def _first_in_line(self, cluster: Cluster) -> Snapshot:
        snapshot = self._snapshot(cluster, [*cluster.queue.values()])
        named = {one.job_id for one in (*snapshot.reservations, *snapshot.displacements)}
        line = [job for place, job in enumerate(Line(snapshot, set()).considered) if place < MOST or job.id in named]
        return replace(snapshot, line=tuple(line))

    def _score(self, said: _Said, actual_us: int) -> None:
        at = said.interval
        track = self._tracks.get(at.bucket, UNTAUGHT)
        track = scored(track, wait_us=said.wait_us, low=at.low, high=at.high, actual_us=actual_us)
        self._tracks[at.bucket] = track
        width_us = None if at.low is None or at.high is None else at.high - at.low
        by_limits_us = None if said.by_limits_us is None else abs(said.by_limits_us - actual_us)
        self.outcomes.append(Outcome(abs(at.expected - actual_us), by_limits_us, width_us, track.scores[-1].held))


def drained(slices: Generator[Reached, None, Mapping[str, int]]) -> Mapping[str, int]:
    """Returns what the replay returns."""
    while True:
        try:
            next(slices)
        except StopIteration as ended:
            return ended.value
