"""Downsampling, compared with the same rule written as plain loops."""

import math

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from api.curves.downsample import bucket_starts, select

VALUES = st.floats() | st.sampled_from([0.0, 1.0, math.nan, math.inf, -math.inf])


def by_hand(values: list[float], max_points: int) -> list[int]:
    count = len(values)
    if count <= max_points:
        return list(range(count))
    odd = max_points >= 5 and any(not math.isfinite(value) for value in values[1:-1])
    starts = [int(start) for start in bucket_starts(count, buckets=(max_points - 2) // (3 if odd else 2))]
    kept = {0, count - 1}
    for start, end in zip(starts, [*starts[1:], count - 1], strict=False):
        finite = [index for index in range(start, end) if math.isfinite(values[index])]
        if finite:
            kept |= {min(finite, key=values.__getitem__), max(finite, key=values.__getitem__)}
        if odd:
            kept |= set([index for index in range(start, end) if not math.isfinite(values[index])][:1])
    return sorted(kept)


@given(st.lists(VALUES, max_size=200), st.integers(2, 60))
def test_it_selects_what_a_plain_implementation_selects(values: list[float], max_points: int) -> None:
    assert select(np.array(values, dtype=np.float64), max_points).tolist() == by_hand(values, max_points)


@given(st.lists(VALUES, max_size=200), st.integers(2, 60))
def test_it_keeps_the_ends_the_extremes_and_the_limit(values: list[float], max_points: int) -> None:
    kept = select(np.array(values, dtype=np.float64), max_points).tolist()
    assert len(kept) <= max_points
    assert kept == sorted(set(kept))
    assert set(kept) <= set(range(len(values)))
    if values:
        assert (kept[0], kept[-1]) == (0, len(values) - 1) or max_points >= len(values)
    finite = [value for value in values if math.isfinite(value)]
    if max_points >= 5 and finite:
        shown = [values[index] for index in kept if math.isfinite(values[index])]
        assert (min(shown), max(shown)) == (min(finite), max(finite))
    if max_points >= 5 and len(finite) < len(values):
        assert any(not math.isfinite(values[index]) for index in kept)


@pytest.mark.parametrize("max_points", [2, 3, 4, 5, 1500, 19_999])
def test_a_long_series_is_reduced_to_the_limit(max_points: int) -> None:
    random = np.random.default_rng(7)
    values = random.normal(size=20_000).cumsum()
    values[random.integers(0, 20_000, 100)] = np.nan
    values[[8_000, 14_000]] = [np.inf, -np.inf]
    kept = select(values, max_points)
    assert kept.tolist() == by_hand(values.tolist(), max_points)
    assert len(kept) <= max_points


@given(st.integers(3, 500), st.integers(1, 250))
def test_buckets_are_equal_shares_of_the_values_between_the_ends(count: int, buckets: int) -> None:
    starts = bucket_starts(count, buckets=min(buckets, count - 2))
    sizes = np.diff(starts, append=count - 1)
    assert starts[0] == 1
    assert sizes.sum() == count - 2
    assert sizes.max() - sizes.min() <= 1
