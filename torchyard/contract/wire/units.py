"""Durations and sizes as people write them: `90s`, `15m`, `24h`, `7d`; `200MB`, `1GiB`."""

from datetime import timedelta
import re
from typing import Any

LONGEST = timedelta(days=3650)
"""Of all durations that a user may ask for."""

DEFAULT_TIME_LIMIT = timedelta(hours=24)
"""The `time_limit` of a spec that says none."""
LONGEST_STOP_GRACE = timedelta(hours=1)
"""Of a job, unless the operator sets another maximum."""

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION = re.compile(r"([0-9]{1,9})([smhd])")


def parse_duration(value: Any) -> timedelta:
    """Returns `90s`, `15m`, `24h` or `7d` as a timedelta, and a timedelta as it is. Raises ValueError."""
    if isinstance(value, timedelta):
        return value
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("write a duration as a number and a unit: 90s, 15m, 24h or 7d")
    duration = timedelta(seconds=int(match[1]) * _UNITS[match[2]])
    if duration > LONGEST:
        raise ValueError(f"must be at most {format_duration(LONGEST)}")
    return duration


def above_zero(value: timedelta) -> timedelta:
    """Returns the duration. Raises ValueError for none."""
    if not value:
        raise ValueError("must be at least 1s")
    return value


def format_duration(value: timedelta) -> str:
    """Returns the shortest spelling that `parse_duration` reads back; parts of a second are cut off."""
    seconds = int(value.total_seconds())
    unit = next((unit for unit, size in _UNITS.items() if seconds and seconds % size == 0), "s")
    return f"{seconds // _UNITS[unit]}{unit}"


_SIZE = re.compile(r"([0-9]{1,15}) ?(?:B|([KMGT])(i?)B)?", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_size(text: str) -> int:
    """Returns the bytes of a size: `200MB` is 200 million, `200MiB` are 200 times 2^20. Raises ValueError."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError("must be a size: 500KiB, 200MiB, 200MB, 1GiB, or a number of bytes")
    return int(match[1]) * (1024 if match[3] else 1000) ** _POWERS[(match[2] or "").upper()]
