"""The buckets and the moving average of a series, against loops over its points."""

from itertools import groupby, pairwise
import math

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from api.curves import buckets
from api.curves.columns import Shape, curves
from store.output.series import SeriesColumns

VALUES = st.lists(
    st.one_of(
        st.floats(-1e3, 1e3),
        st.sampled_from([math.nan, math.inf, -math.inf, 1.7976931348623157e308, -1.7976931348623157e308, 5e-324]),
    ),
    max_size=150,
)
SMOOTH = st.floats(0, 1, exclude_min=True, exclude_max=True)


def array(values: list[float]) -> buckets.Values:
    return np.array(values, dtype=np.float64)


def smoothed(values: list[float], smooth: float) -> list[float]:
    """TensorBoard's loop, which leaves out what is not finite."""
    last, count, found = 0.0, 0, list[float]()
    for value in values:
        if math.isfinite(value):
            count += 1
            last = last * smooth + (1 - smooth) * value
        found.append(last / -math.expm1(count * math.log(smooth)) if count else math.nan)
    return found


def scale(values: list[float]) -> float:
    return max((abs(value) for value in values if math.isfinite(value)), default=0.0)


@given(VALUES, SMOOTH)
def test_the_average_is_that_of_the_loop(values: list[float], smooth: float) -> None:
    found = buckets.ema(array(values), smooth).tolist()
    expected = smoothed(values, smooth)
    # Within an interval of all values, so that rounding does not make the greatest of floats infinite.
    finite = [value for value in values if math.isfinite(value)]
    clipped = [min(max(value, min(finite)), max(finite)) if finite else value for value in expected]
    assert found == pytest.approx(clipped, rel=1e-9, abs=1e-9 * scale(values), nan_ok=True)


def test_the_average_of_equal_values_is_that_value() -> None:
    assert set(buckets.ema(array([0.1] * 5000), 0.97).tolist()) == {0.1}


SHAPES = st.tuples(st.integers(2, 40), st.integers(0, 3000), st.integers(0, 3000), SMOOTH)
"""The most places, the first and the last step, and the weight of the past."""
SERIES = st.integers(0, 150).flatmap(
    lambda count: st.tuples(
        st.lists(
            st.one_of(st.floats(allow_nan=True), st.floats(-1, 1)),
            min_size=count,
            max_size=count,
        ),
        st.lists(st.integers(1, 3), min_size=count, max_size=count),
        st.lists(st.integers(1, 50), min_size=count, max_size=count),
    )
)


def columns(values: list[float], attempts: list[int], gaps: list[int]) -> SeriesColumns:
    steps = np.cumsum(np.array(gaps, dtype=np.int64))
    return SeriesColumns(steps, array(values), steps * 1_000_000, np.array(sorted(attempts), dtype=np.int64))


@given(SERIES, st.integers(3, 40))
def test_buckets_divide_the_points(series: tuple[list[float], list[int], list[int]], max_points: int) -> None:
    found = columns(*series)
    if not len(found.steps):
        return
    starts = buckets.starts(found.attempts, max_points)
    assert starts[0] == 0
    assert len(starts) <= max_points
    assert all(before < after for before, after in pairwise(starts.tolist()))
    parts = np.split(np.arange(len(found.steps)), starts[1:])
    assert np.concatenate(parts).tolist() == list(range(len(found.steps)))
    assert all(len(set(found.attempts[part].tolist())) == 1 for part in parts)
    for _, group in groupby(parts, key=lambda part: int(found.attempts[part[0]])):
        *full, _ = [len(part) for part in group]
        assert len(set(full)) <= 1


@given(SERIES, st.integers(3, 40))
def test_each_bucket_says_what_its_points_are(
    series: tuple[list[float], list[int], list[int]], max_points: int
) -> None:
    found = columns(*series)
    if not len(found.steps):
        return
    starts = buckets.starts(found.attempts, max_points)
    reduced = buckets.reduce(found.values, starts)
    for place, part in enumerate(np.split(found.values, starts[1:])):
        finite = [value for value in part.tolist() if math.isfinite(value)]
        assert reduced.nonfinite[place] == len(part) - len(finite)
        if not finite:
            assert all(math.isnan(column[place]) for column in (reduced.mean, reduced.low, reduced.high))
            continue
        assert (reduced.low[place], reduced.high[place]) == (min(finite), max(finite))
        exact = math.fsum(value / len(finite) for value in finite)
        assert reduced.mean[place] == pytest.approx(exact, rel=1e-12, abs=1e-13 * scale(finite))
        assert min(finite) <= reduced.mean[place] <= max(finite)


@given(SERIES, st.integers(2, 40), SHAPES)
def test_a_zoom_changes_no_average(
    series: tuple[list[float], list[int], list[int]], some: int, zoom: tuple[int, int, int, float]
) -> None:
    more, begin, end, smooth = zoom
    found = columns(*series)
    (whole,) = curves("job", "key", found, Shape(some, smooth=smooth))
    (zoomed,) = curves("job", "key", found, Shape(more, from_step=begin, to_step=end, smooth=smooth))
    assert zoomed.points == sum(begin <= step <= end for step in found.steps.tolist())
    for curve, most in ((whole, some), (zoomed, more)):
        lists = curve.columns
        assert (
            len(lists.step) == min(len(lists.step), most) == len(lists.mean) == len(lists.time) == len(lists.ema or ())
        )
        assert lists.step == sorted(set(lists.step))
    assert all(begin <= step <= end for step in zoomed.columns.step)
    shown = dict(zip(whole.columns.step, whole.columns.ema or (), strict=True))
    for step, value in zip(zoomed.columns.step, zoomed.columns.ema or (), strict=True):
        assert shown.get(step, value) == value


def test_many_seams_do_not_make_too_many_buckets() -> None:
    attempts = np.arange(1000, dtype=np.int64) // 2
    assert len(buckets.starts(attempts, 500)) == 500
    assert len(buckets.starts(attempts, 499)) <= 499
    assert buckets.starts(attempts, 2).tolist() == [0, 500]


def test_means_of_the_greatest_floats_are_finite() -> None:
    greatest = 1.7976931348623157e308
    reduced = buckets.reduce(array([greatest] * 4 + [greatest, -greatest] * 2), np.array([0, 4]))
    assert reduced.mean.tolist() == [greatest, 0.0]


def test_points_that_are_not_reduced_keep_their_values() -> None:
    steps = np.arange(4)
    found = SeriesColumns(steps, array([math.nan, 1.0, math.inf, 3.0]), steps, np.ones(4, dtype=np.int64))
    (curve,) = curves("job", "key", found, Shape(4, smooth=0.5))
    shown = curve.columns
    assert [str(value) for value in shown.mean] == ["nan", "1.0", "inf", "3.0"]
    assert (shown.min, shown.max, shown.nonfinite) == (None, None, [1, 0, 1, 0])
    assert shown.ema == [None, 1.0, 1.0, pytest.approx(7 / 3)]


def test_a_bucket_of_nothing_finite_has_no_values() -> None:
    steps = np.arange(6)
    found = SeriesColumns(steps, array([math.nan] * 3 + [1.0, 2.0, 3.0]), steps, np.ones(6, dtype=np.int64))
    (curve,) = curves("job", "key", found, Shape(2))
    shown = curve.columns
    assert (shown.step, shown.mean, shown.min, shown.max) == ([2, 5], [None, 2.0], [None, 1.0], [None, 3.0])
    assert (shown.nonfinite, shown.ema, curve.steps_per_bucket) == ([3, 0], None, 3)
