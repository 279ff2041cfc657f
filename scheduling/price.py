"""What a running job loses if it stops now without saving. Which jobs stop for others, and what users are told."""

_MOST_STEPS = 2**53
"""Nobody trains so many; a number in JSON is exact up to here."""


def lost_us(*, now: int, since: int, saved_at: int | None, devices: int) -> int:
    """Returns the device microseconds since the attempt's newest checkpoint, or its start if it has none.

    Where a clock has jumped back behind them, nothing is lost.
    """
    kept_until = since if saved_at is None else max(since, saved_at)
    return devices * max(0, now - kept_until)


def lost_steps(told: object, *, saved: int | None) -> int | None:
    """Returns the steps since the one that the newest checkpoint has; None without a checkpoint: all of them are lost.

    `told` is what the job says of its step, which may be anything. Returns None if that cannot be true.
    """
    if not isinstance(told, int) or isinstance(told, bool) or not 0 <= told < _MOST_STEPS:
        return None
    steps = told - (saved or 0)
    return steps if steps >= 0 else None
