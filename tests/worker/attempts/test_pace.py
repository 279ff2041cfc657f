"""How often an attempt is looked at."""

from itertools import pairwise

from worker.attempts.pace import SHORTEST_S, pause_s


def pauses(seconds: float, *, silent: bool) -> list[float]:
    """Between the looks at an attempt, from its start on."""
    now, found = 0.0, list[float]()
    while now < seconds:
        found.append(pause_s(since_turn=now, since_news=now if silent else 0.0))
        now += found[-1]
    return found


def test_what_has_just_started_is_looked_at_all_the_time() -> None:
    assert pause_s(since_turn=0.0, since_news=0.0) == SHORTEST_S
    assert max(pauses(1.0, silent=False)) <= 0.05


def test_one_that_is_silent_is_looked_at_twice_a_second() -> None:
    assert pause_s(since_turn=3600.0, since_news=3600.0) == 0.5


def test_one_that_prints_all_the_time_is_looked_at_four_times_a_second() -> None:
    assert pause_s(since_turn=3600.0, since_news=0.0) == 0.25


def test_pauses_grow_little_by_little() -> None:
    for silent in (False, True):
        found = pauses(60.0, silent=silent)
        assert found == sorted(found)
        assert all(later < 1.2 * earlier for earlier, later in pairwise(found))
