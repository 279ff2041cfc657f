"""What a running job loses if it stops now without saving. Which jobs stop for others, and what users read."""

_MOST_STEPS = 2**53
"""Nobody trains so many; a number in JSON is exact up to here."""


def lost_us(*, now: int, since: int, saved_at: int | None, devices: int) -> int:
    """Returns the device microseconds since the attempt's newest checkpoint, or its start if it has none.

    Where a clock has jumped back behind them, nothing is lost.
    """
    kept_until = since if saved_at is None else max(since, saved_at)
    return devices * max(0, now - kept_until)


def lost_steps(reported: object, *, saved: int | None) -> int | None:
    """Returns the steps that are lost; None if what the job tells cannot be true.

    `reported`: its step as the job says, which may be anything. `saved`: that of its newest checkpoint; None: it has
    none, so that all steps are lost.
    """
    if not isinstance(reported, int) or isinstance(reported, bool) or not 0 <= reported < _MOST_STEPS:
        return None
    steps = reported - (saved or 0)
    return steps if steps >= 0 else None
