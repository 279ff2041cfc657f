"""When the time limit stops and kills an attempt, in seconds of a clock that stands still."""

from datetime import timedelta

import pytest

from worker.engines.local.supervisor.time_limit import TimeLimit

DAY = 86_400


@pytest.mark.parametrize(
    ("limit", "grace", "stop_at"),
    [
        (DAY, 30, DAY - 30),
        (DAY, 0, DAY),
        (60, 30, 30),
        (60, 45, 30),
        (7, 45, 4),
        (60, 3650 * DAY, 30),
        (1, 30, 1),
        (3650 * DAY, 3650 * DAY, 3650 * DAY / 2),
    ],
)
def test_the_stop_comes_its_grace_before_the_limit_and_not_before_its_half(
    limit: int, grace: int, stop_at: float
) -> None:
    found = TimeLimit(100, timedelta(seconds=limit), timedelta(seconds=grace))
    assert found.stop_at == 100 + stop_at
    assert found.deadline(found.stop_at, found.grace) == 100 + limit


@pytest.mark.parametrize(("now", "grace", "deadline"), [(0, 10, 10), (50, 10, 60), (55, 10, 60), (61, 10, 60)])
def test_no_stop_outlives_the_limit(now: float, grace: int, deadline: float) -> None:
    found = TimeLimit(0, timedelta(seconds=60), timedelta(seconds=30))
    assert found.deadline(now, timedelta(seconds=grace)) == deadline
