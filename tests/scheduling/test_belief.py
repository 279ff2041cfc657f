"""How long jobs are believed to run."""

import math

import pytest

from scheduling.belief import believed_left, believed_length
from tests.scheduling.clusters import HOUR, MINUTE, NOW, runs, waits


@pytest.mark.parametrize(
    ("fraction", "hours"),
    [
        (0.5, 1),
        (0.25, 3),
        (None, 23),
        (math.nan, 23),
        (0.0, 23),
        (-1.0, 23),
        (1e-9, 23),
        (math.inf, 1 / 60),
        (7.0, 1 / 60),
        (1.0, 1 / 60),
    ],
)
def test_progress_tells_what_is_left_within_the_limit(fraction: float | None, hours: float) -> None:
    assert believed_left(runs("job_1", fraction=fraction), NOW) == pytest.approx(hours * HOUR)


def test_without_progress_a_job_runs_as_long_as_its_owners_others() -> None:
    assert believed_left(runs("job_1", usual_us=3 * HOUR), NOW) == 2 * HOUR
    assert believed_left(runs("job_1", usual_us=3 * HOUR, fraction=0.5), NOW) == HOUR
    assert believed_left(runs("job_1", usual_us=100 * HOUR), NOW) == 23 * HOUR


def test_a_job_that_runs_longer_than_the_others_is_believed_to_run_twice_as_long() -> None:
    assert believed_left(runs("job_1", usual_us=45 * MINUTE), NOW) == 30 * MINUTE
    assert believed_left(runs("job_1", usual_us=HOUR), NOW) == HOUR
    assert believed_left(runs("job_1", usual_us=20 * MINUTE), NOW) == 20 * MINUTE
    assert believed_left(runs("job_1", usual_us=0), NOW) == 23 * HOUR


def test_a_job_that_stops_or_is_over_its_limit_needs_nothing() -> None:
    assert believed_left(runs("job_1", stopping=True), NOW) == 0
    assert believed_left(runs("job_1", ran_us=30 * HOUR, fraction=0.1), NOW) == 0


def test_the_clock_may_have_jumped_back() -> None:
    assert believed_left(runs("job_1", since=NOW + HOUR), NOW) == 24 * HOUR


def test_a_waiting_job_is_believed_to_need_what_it_told_or_what_others_ran() -> None:
    assert believed_length(waits("job_1", fraction=0.5)) == HOUR
    assert believed_length(waits("job_1", ran_us=0, fraction=0.5)) == 24 * HOUR
    assert believed_length(waits("job_1", ran_us=0, usual_us=2 * HOUR)) == 2 * HOUR
    assert believed_length(waits("job_1")) == 23 * HOUR
