"""The intervals of estimates: how they follow from those before them."""

from scheduling.calibration import BUCKETS, ENOUGH, MOST_SCORES, UNTAUGHT, Track, bucket_of, interval, scored
from tests.scheduling.clusters import HOUR, MINUTE


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


def test_a_bucket_with_few_scores_uses_those_of_all() -> None:
    tracks = {0: _taught(ENOUGH // 2), 1: _taught(ENOUGH // 2)}
    assert interval(tracks, 1000 * HOUR).high is not None


def test_a_track_keeps_the_newest_scores() -> None:
    assert len(_taught(MOST_SCORES + 5).scores) == MOST_SCORES


def test_buckets_are_numbered_by_the_wait() -> None:
    assert [bucket_of(wait) for wait in (-5, 0, 1 << 70)] == [0, 0, BUCKETS - 1]


def _taught(count: int) -> Track:
    track = UNTAUGHT
    for _ in range(count):
        track = scored(track, wait_us=MINUTE, low=0, high=HOUR, actual_us=MINUTE)
    return track
