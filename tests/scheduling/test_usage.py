"""What an owner used counts by half a day later, however the runs are cut into parts."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
import pytest

from scheduling.usage import HALF_LIFE, decayed, used_at

DAY = HALF_LIFE // timedelta(microseconds=1)
SECOND = 1_000_000
times = st.integers(0, 40 * DAY)
counts = st.integers(1, 1000)


def test_a_short_run_counts_its_device_seconds_and_a_day_later_half_of_them() -> None:
    assert used_at(SECOND, devices=4, began=0, ended=SECOND) == pytest.approx(4, rel=1e-4)
    assert used_at(DAY + SECOND, devices=4, began=0, ended=SECOND) == pytest.approx(2, rel=1e-4)
    assert used_at(SECOND, devices=1, began=0, ended=1) == pytest.approx(1e-6, rel=1e-4)


def test_a_run_without_an_end_counts_at_most_a_half_life_over_ln_2() -> None:
    most = 86_400 / 0.6931471805599453
    assert used_at(400 * DAY, devices=1, began=0, ended=400 * DAY) == pytest.approx(most)
    assert used_at(0, devices=1, began=0, ended=0) == 0


@given(cuts=st.tuples(times, times, times, times).map(sorted), devices=counts)
def test_a_run_that_is_split_anywhere_counts_the_same(cuts: list[int], devices: int) -> None:
    began, cut, ended, now = cuts
    whole = used_at(now, devices=devices, began=began, ended=ended)
    parts = [used_at(now, devices=devices, began=one, ended=two) for one, two in ((began, cut), (cut, ended))]
    assert sum(parts) == pytest.approx(whole, rel=1e-9, abs=1e-9)


@given(cuts=st.tuples(times, times, times, times).map(sorted), devices=counts)
def test_what_is_kept_as_of_any_time_decays_to_the_same(cuts: list[int], devices: int) -> None:
    began, ended, kept_at, now = cuts
    kept = used_at(kept_at, devices=devices, began=began, ended=ended)
    assert decayed(kept, after_us=now - kept_at) == pytest.approx(
        used_at(now, devices=devices, began=began, ended=ended), rel=1e-9
    )


@given(cuts=st.tuples(times, times, times).map(sorted))
def test_it_is_the_sum_over_the_seconds_of_the_run(cuts: list[int]) -> None:
    began, ended, now = cuts
    steps = 2000
    length = (ended - began) / steps
    middles = (began + (number + 0.5) * length for number in range(steps))
    summed = sum(2 ** (-(now - middle) / DAY) * length / SECOND for middle in middles)
    assert used_at(now, devices=1, began=began, ended=ended) == pytest.approx(summed, rel=1e-4, abs=1e-6)


@given(used=st.floats(0, 1e12), back=times)
def test_a_clock_that_runs_backwards_adds_nothing(used: float, back: int) -> None:
    assert decayed(used, after_us=-back) == used
    assert used_at(0, devices=3, began=back, ended=0) == 0
    assert used_at(0, devices=3, began=back, ended=back + SECOND) <= 3
