"""How far an estimate of a wait may be off, by how far those before it were.

Adaptive conformal inference (Gibbs & Candès, "Adaptive Conformal Inference Under Distribution Shift", 2021, arXiv
2106.00170), over the logarithms of how many times as long as a replay said jobs did wait, in five buckets of what it
said. `level` is the part of the estimates that may miss: after one that held it rises by a little, after one that
missed it falls by four times as much, so that in the long run 80% hold, whatever comes.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
import math

BUCKETS = 5
MOST_SCORES = 200
"""Of a bucket: the newest."""
ENOUGH = 20
"""With fewer scores there is no interval."""
MISSES = 0.2
"""The part of the intervals that is to miss."""

_US = timedelta(microseconds=1)
_BOUNDS_US = tuple(timedelta(minutes=minutes) // _US for minutes in (15, 60, 240, 960))
_LEAST_US = timedelta(minutes=1) // _US
"""Added to all waits: whether a job waits one second or ten is no tenfold error."""
_MOST_US = timedelta(days=3650) // _US
_RATE = 0.01
"""By how much of a miss the level falls."""


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
    scores: tuple[Score, ...]
    """The newest last, at most `MOST_SCORES`."""

    @property
    def held(self) -> int:
        return sum(score.held is True for score in self.scores)

    @property
    def of(self) -> int:
        """How many had an interval."""
        return sum(score.held is not None for score in self.scores)


UNTAUGHT = Track(MISSES, ())


@dataclass(frozen=True)
class Interval:
    """When a job is expected to start: waits in microseconds from the moment of the estimate."""

    bucket: int
    expected: int
    low: int | None
    """None, as `high` is: too few such estimates have been scored."""
    high: int | None


def bucket_of(wait_us: int) -> int:
    """Returns the bucket of the estimates that say so long a wait."""
    return bisect_right(_BOUNDS_US, wait_us)


def interval(tracks: Mapping[int, Track], wait_us: int) -> Interval:
    """Returns when a job is expected to start of which a replay says this wait.

    By the scores of its bucket or, while these are fewer than `ENOUGH`, by those of all.
    """
    bucket = bucket_of(wait_us)
    track = tracks.get(bucket, UNTAUGHT)
    known = track.scores
    if len(known) < ENOUGH:
        known = tuple(score for _, one in sorted(tracks.items()) for score in one.scores)
    ratios = sorted(score.log_ratio for score in known)
    if len(ratios) < ENOUGH:
        return Interval(bucket, _clamped(wait_us), None, None)
    low, high = _times(wait_us, _lower(ratios, track.level / 2)), _times(wait_us, _upper(ratios, track.level / 2))
    expected = _times(wait_us, ratios[len(ratios) // 2])
    return Interval(bucket, expected, min(low, expected), max(high, expected))


def scored(track: Track, *, wait_us: int, low: int | None, high: int | None, actual_us: int) -> Track:
    """Returns the track after the job has started. `low`, `high` and `actual_us` are waits, too."""
    log_ratio = math.log((_clamped(actual_us) + _LEAST_US) / (_clamped(wait_us) + _LEAST_US))
    held = None if low is None or high is None else low <= _clamped(actual_us) <= high
    level = track.level if held is None else track.level + _RATE * (MISSES - (not held))
    return Track(level, (*track.scores, Score(log_ratio, held))[-MOST_SCORES:])


def _lower(ratios: Sequence[float], part: float) -> float:
    """Returns what at most this part of the ratios is below, with one more to come."""
    rank = math.floor(part * (len(ratios) + 1))
    return -math.inf if rank < 1 else ratios[min(rank, len(ratios)) - 1]


def _upper(ratios: Sequence[float], part: float) -> float:
    rank = math.floor(part * (len(ratios) + 1))
    return math.inf if rank < 1 else ratios[max(len(ratios) - rank, 0)]


def _times(wait_us: int, log_ratio: float) -> int:
    if log_ratio == math.inf:
        return _MOST_US
    return _clamped(round((_clamped(wait_us) + _LEAST_US) * math.exp(min(log_ratio, 50.0))) - _LEAST_US)


def _clamped(wait_us: int) -> int:
    return min(max(wait_us, 0), _MOST_US)
