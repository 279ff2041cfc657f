"""The intervals of estimates: how they follow from those before them."""

import math
from random import Random
from statistics import fmean

from hypothesis import given
from hypothesis import strategies as st
import pytest

from scheduling.calibration import BUCKETS, ENOUGH, MISSES, MOST_SCORES, UNTAUGHT, Track, bucket_of, interval, scored
from tests.scheduling.clusters import HOUR, MINUTE

WAITS = st.sampled_from([-(1 << 62), -1, 0, 1, MINUTE, 1 << 62]) | st.integers(0, 100 * HOUR)
MOST_WAIT_US = 3650 * 24 * HOUR


def test_there_is_no_interval_before_enough_estimates_were_scored() -> None:
    assert interval({}, HOUR).low is None
    track = UNTAUGHT
    for _ in range(ENOUGH - 1):
        track = scored(track, wait_us=HOUR, low=None, high=None, actual_us=2 * HOUR)
    assert interval({bucket_of(HOUR): track}, HOUR).high is None
    track = scored(track, wait_us=HOUR, low=None, high=None, actual_us=2 * HOUR)
    found = interval({bucket_of(HOUR): track}, HOUR)
    assert found.low is not None and found.high is not None and found.low <= found.expected <= found.high
    assert HOUR < found.expected < 2 * HOUR
    assert (track.held, track.of) == (0, 0)


def test_a_bucket_without_scores_has_an_interval_but_none_of_the_errors_of_others() -> None:
    track = UNTAUGHT
    for _ in range(ENOUGH):
        track = scored(track, wait_us=24 * HOUR, low=None, high=None, actual_us=MINUTE)
    found = interval({bucket_of(24 * HOUR): track}, 2 * MINUTE)
    assert found.high is not None
    assert found.expected == 2 * MINUTE


def test_the_fewer_scores_the_less_of_an_error_is_made_good() -> None:
    expected: list[int] = []
    track = UNTAUGHT
    others = _taught(ENOUGH)
    for _ in range(ENOUGH):
        expected.append(interval({0: others, bucket_of(HOUR): track}, HOUR).expected)
        track = scored(track, wait_us=HOUR, low=None, high=None, actual_us=4 * HOUR)
    assert expected[0] == HOUR
    assert expected == sorted(set(expected))


def test_an_interval_spans_a_minute_at_least() -> None:
    track = UNTAUGHT
    for _ in range(ENOUGH):
        track = scored(track, wait_us=10 * MINUTE, low=None, high=None, actual_us=0)
    found = interval({0: Track(0.02, track.scores)}, 0)
    assert found.low == found.expected == 0
    assert found.high == MINUTE


def test_a_track_keeps_the_newest_scores() -> None:
    assert len(_taught(MOST_SCORES + 5).scores) == MOST_SCORES


def test_buckets_are_numbered_by_the_wait() -> None:
    assert [bucket_of(wait) for wait in (-5, 0, 1 << 70)] == [0, 0, BUCKETS - 1]


def _taught(count: int) -> Track:
    track = UNTAUGHT
    for _ in range(count):
        track = scored(track, wait_us=MINUTE, low=0, high=HOUR, actual_us=MINUTE)
    return track


@given(st.lists(st.tuples(WAITS, WAITS), max_size=60))
def test_any_waits_give_finite_levels_and_intervals_in_order(waits: list[tuple[int, int]]) -> None:
    tracks: dict[int, Track] = {}
    for wait_us, actual_us in waits:
        found = interval(tracks, wait_us)
        track = tracks.get(found.bucket, UNTAUGHT)
        tracks[found.bucket] = scored(track, wait_us=wait_us, low=found.low, high=found.high, actual_us=actual_us)
        assert 0 <= found.bucket < BUCKETS and found.expected >= 0
        assert (found.low is None) == (found.high is None)
        assert found.low is None or found.high is None or 0 <= found.low <= found.expected <= found.high
    for track in tracks.values():
        assert math.isfinite(track.level) and all(math.isfinite(score.log_ratio) for score in track.scores)
        assert track.held <= track.of <= len(track.scores)


@pytest.mark.parametrize(("shift", "spread"), [(0.0, 0.5), (1.4, 0.5), (0.0, 1.5)])
def test_eighty_percent_hold_in_the_end_however_wrong_the_replays_are(shift: float, spread: float) -> None:
    """Jobs wait as long as was said, four times as long, or anything from a tenth to ten times as long."""
    random, tracks = Random(1), dict[int, Track]()
    actual = [round(2 * HOUR * math.exp(random.gauss(shift, spread))) for _ in range(4_000)]
    held = [_held_next(tracks, 2 * HOUR, actual_us) for actual_us in actual]
    assert 0.75 <= fmean(held[-1_500:]) <= 0.85


def test_whoever_picks_the_outcomes_misses_no_more_than_the_published_bound() -> None:
    """Of T outcomes miss at most MISSES · T + (the range of the level) / (its least step), by arXiv 2307.16895.

    An adversary knows the interval, and misses it above whenever that can be.
    """
    tracks: dict[int, Track] = {}
    held: list[bool] = []
    for _ in range(5_000):
        high = interval(tracks, 100 * HOUR).high
        held.append(_held_next(tracks, 100 * HOUR, 0 if high is None else high + 1))
    widest, least_step = math.log(MOST_WAIT_US / (100 * HOUR)) + 1, 4.0 / MOST_SCORES
    assert held.count(False) <= MISSES * len(held) + widest / least_step


def test_half_of_the_median_of_past_errors_is_made_good() -> None:
    track = UNTAUGHT
    for _ in range(ENOUGH):
        track = scored(track, wait_us=100 * HOUR, low=None, high=None, actual_us=400 * HOUR)
    assert interval({bucket_of(100 * HOUR): track}, 100 * HOUR).expected == pytest.approx(200 * HOUR, rel=1e-3)


def _held_next(tracks: dict[int, Track], wait_us: int, actual_us: int) -> bool:
    """Scores one more estimate. Returns whether its interval held; True if it had none."""
    found = interval(tracks, wait_us)
    track = tracks.get(found.bucket, UNTAUGHT)
    track = scored(track, wait_us=wait_us, low=found.low, high=found.high, actual_us=actual_us)
    tracks[found.bucket] = track
    return track.scores[-1].held is not False
