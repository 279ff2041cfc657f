"""How much an owner has used: device seconds, which count by half a day later."""

from datetime import timedelta
import math

HALF_LIFE = timedelta(hours=24)
"""After this time a device second counts half."""

_HALF_LIFE_S = HALF_LIFE.total_seconds()
_SECOND_US = 1_000_000


def decayed(used_s: float, *, after_us: int) -> float:
    """Returns what is left of `used_s` device seconds after some microseconds; all of it if a clock ran backwards."""
    return used_s * math.exp2(-max(0, after_us) / _SECOND_US / _HALF_LIFE_S)


def used_at(now: int, *, devices: int, began: int, ended: int) -> float:
    """Returns how much it counts at `now` that so many devices were held, in device seconds.

    Times are in microseconds, `now` not before `ended`. It is the integral of devices · 2^(−(now − s) / half-life) over
    the time s from `began` to `ended`: a run counts the same in one part or in many.
    """
    held_s = max(0, ended - began) / _SECOND_US
    # By expm1, as a difference of two powers would lose most digits of a run of seconds.
    at_end = -math.expm1(-math.log(2) * held_s / _HALF_LIFE_S) * _HALF_LIFE_S / math.log(2)
    return decayed(devices * at_end, after_us=now - ended)
