"""What the shape of a waiting job says of its time: one class of the limit that is left, and whether it has looked."""

from bisect import bisect_left
from datetime import timedelta

LOOK = timedelta(minutes=30)
"""A job that ran shorter in all may displace others once: its first look."""

_US = timedelta(microseconds=1)
_MIDDLE_US = timedelta(hours=24) // _US
_BOUNDS_US = tuple(round(_MIDDLE_US * 2 ** (step / 4)) for step in range(-42, 21))
"""From a minute to a month, four in each doubling, so that the default of 24 hours is one."""
UNBOUNDED_US = 1 << 53
"""What stands for a limit above all classes: 285 years."""


def limit_class(left_us: int) -> int:
    """Returns which of the 64 classes has what is left of a job's limit."""
    return bisect_left(_BOUNDS_US, left_us)


def limit_rounded_up(left_us: int) -> int:
    """Returns the most that a job of the same class has left: equal for all jobs of a shape."""
    number = limit_class(left_us)
    return _BOUNDS_US[number] if number < len(_BOUNDS_US) else UNBOUNDED_US


def looked(ran_us: int) -> bool:
    """Returns whether a job that ran so long in all has had its first look."""
    return ran_us >= LOOK // _US
