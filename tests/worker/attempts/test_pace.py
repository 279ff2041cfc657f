"""How often an attempt is polled."""

from itertools import pairwise

from worker.attempts.pace import SHORTEST_S, pause_s


def pauses(seconds: float, *, silent: bool) -> list[float]:
    """The pauses between the polls of an attempt, from its start on."""
    now, found = 0.0, list[float]()
    while now < seconds:
        found.append(pause_s(since_change=now, since_output=now if silent else 0.0))
        now += found[-1]
    return found


def test_an_attempt_that_has_just_started_is_polled_continuously() -> None:
    assert pause_s(since_change=0.0, since_output=0.0) == SHORTEST_S
    assert max(pauses(1.0, silent=False)) <= 0.05


def test_a_silent_attempt_is_polled_twice_a_second() -> None:
    assert pause_s(since_change=3600.0, since_output=3600.0) == 0.5


def test_an_attempt_that_prints_all_the_time_is_polled_four_times_a_second() -> None:
    assert pause_s(since_change=3600.0, since_output=0.0) == 0.25


def test_the_pauses_grow_gradually() -> None:
    for silent in (False, True):
        found = pauses(60.0, silent=silent)
        assert found == sorted(found)
        assert all(later < 1.2 * earlier for earlier, later in pairwise(found))
