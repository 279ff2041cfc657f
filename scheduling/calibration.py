"""How far an estimate of a wait may be off, by how far those before it were.

Adaptive conformal inference (Gibbs & Candès 2021, arXiv 2106.00170) over the logarithms of how many times as long as a
replay said jobs did wait, in five buckets of what it said. It tracks the width itself, as Angelopoulos, Candès &
Tibshirani do (2023, arXiv 2307.16895): after an interval that held, the next ones of its bucket are a little narrower;
after one that missed, wider by four times as much. So 80% hold in the long run, whatever comes, and however wrong the
replays are.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
import math
from statistics import median

BUCKETS = 5
MOST_SCORES = 200
"""Of a bucket: the newest."""
ENOUGH = 20
"""With fewer scores there is no interval."""
MISSES = 0.2
"""The part of the intervals that is to miss."""

_US = timedelta(microseconds=1)
_BOUNDS_US = tuple(timedelta(minutes=minutes) // _US for minutes in (15, 60, 240, 960))
_ADDED_US = timedelta(minutes=2) // _US
"""To both waits of a ratio: whether a job waits one second or ten is no tenfold error."""
_MOST_US = timedelta(days=3650) // _US
"""Longer waits count as this one."""
_RATE = 4.0
"""A score moves the level by its part of this: one of 20 to begin with, and one of 200 in the end."""
_LEAST_WIDTH_US = timedelta(minutes=1) // _US
"""Of an interval: a replay is seconds old when it is shown, and jobs start between two looks."""
_LEAST_LEVEL, _MOST_LEVEL = 0.02, 20.0
_TRUST = 0.5
"""What part of the median of past errors is made good: scores of one hour are much alike, and 200 are no long time."""


@dataclass(frozen=True)
class Score:
    """What has become of an estimate."""

    log_ratio: float
    """The logarithm of the wait that it was to the one that the replay said."""
    held: bool | None
    """Whether the job started in the interval. None: there was none."""


@dataclass(frozen=True)
class Track:
    """What the estimates of a bucket have taught."""

    level: float
    """Half the width of the next interval, as the logarithm of a ratio of waits."""
    scores: tuple[Score, ...]
    """The newest last, at most `MOST_SCORES`."""

    @property
    def held(self) -> int:
        return sum(score.held is True for score in self.scores)

    @property
    def of(self) -> int:
        """How many had an interval."""
        return sum(score.held is not None for score in self.scores)


UNTAUGHT = Track(1.0, ())


@dataclass(frozen=True)
class Interval:
    """When a job is expected to start: waits in microseconds from the moment of the estimate."""

    bucket: int
    expected: int
    low: int | None
    """None, as `high` is: too few such estimates have been scored."""
    high: int | None

    def since(self, now: int) -> "Interval":
        """Returns the interval with moments in place of waits: of an estimate that is made at `now`."""
        low, high = (None if wait_us is None else now + wait_us for wait_us in (self.low, self.high))
        return Interval(self.bucket, now + self.expected, low, high)


def bucket_of(wait_us: int) -> int:
    """Returns the bucket of the estimates that say so long a wait."""
    return bisect_right(_BOUNDS_US, wait_us)


def interval(tracks: Mapping[int, Track], wait_us: int) -> Interval:
    """Returns when a job is expected to start of which a replay says this wait.

    By the scores of its bucket. There is an interval once all buckets together have `ENOUGH`.
    """
    bucket = bucket_of(wait_us)
    track = tracks.get(bucket, UNTAUGHT)
    if sum(len(one.scores) for one in tracks.values()) < ENOUGH:
        return Interval(bucket, _clamped(wait_us), None, None)
    middle = _correction(track)
    expected, low, high = (_times(wait_us, middle + more) for more in (0.0, -track.level, track.level))
    return Interval(bucket, expected, low, max(high, low + _LEAST_WIDTH_US))


def too_few(scores: int) -> int:
    """Returns of how many scores an estimate tells that has no interval. `scores`: those of all buckets by now."""
    return min(scores, ENOUGH - 1)


def scored(track: Track, *, wait_us: int, low: int | None, high: int | None, actual_us: int) -> Track:
    """Returns the track after the job has started. `low`, `high` and `actual_us` are waits, too."""
    actual_us = _clamped(actual_us)
    log_ratio = math.log((actual_us + _ADDED_US) / (_clamped(wait_us) + _ADDED_US))
    held = None if low is None or high is None else low <= actual_us <= high
    level = track.level
    if held is not None:
        step = _RATE / max(ENOUGH, len(track.scores))
        level = min(max(level + step * ((not held) - MISSES), _LEAST_LEVEL), _MOST_LEVEL)
    return Track(level, (*track.scores, Score(log_ratio, held))[-MOST_SCORES:])


def _correction(track: Track) -> float:
    """Returns the logarithm by which a replay is corrected: the fewer scores, the less of what they say."""
    if not track.scores:
        return 0.0
    known = min(len(track.scores) / ENOUGH, 1.0)
    return known * _TRUST * median(score.log_ratio for score in track.scores)


def _times(wait_us: int, log_ratio: float) -> int:
    return _clamped(round((_clamped(wait_us) + _ADDED_US) * math.exp(log_ratio)) - _ADDED_US)


def _clamped(wait_us: int) -> int:
    return min(max(wait_us, 0), _MOST_US)
