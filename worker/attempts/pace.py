"""How often to look at an attempt: at once while something is about to happen, ever more rarely while nothing does.

Its end is no matter of looks: the engine tells it.
"""

SHORTEST_S = 0.02
_BUSY_S = 0.25
"""With every look at a program that prints all the time, there is a transaction."""
_QUIET_S = 0.5


def pause_s(*, since_turn: float, since_news: float) -> float:
    """Seconds until the next look. `since_turn`: since it started, or all its ranks came up; `since_news`: since it
    wrote something.
    """
    busy = min(max(since_turn / 20, SHORTEST_S), _BUSY_S)
    return min(max(busy, since_news / 8), _QUIET_S)
