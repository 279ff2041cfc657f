"""When GPUs count as idle, and what a job is told of it."""

from datetime import timedelta

from torchyard.contract.wire.units import format_duration

IDLE_BELOW = 0.05
"""A GPU whose utilization is below this share of the time is idle."""
SHORTEST_IDLE_TIMEOUT = timedelta(minutes=1)
_MINUTE = timedelta(minutes=1)


def long_enough(value: timedelta | None) -> timedelta | None:
    """Returns an idle timeout, if there is one. Raises ValueError for one that says nothing of a job."""
    if value is not None and value < SHORTEST_IDLE_TIMEOUT:
        raise ValueError(f"must be at least {format_duration(SHORTEST_IDLE_TIMEOUT)}")
    return value


def warning(*, devices: int, lasted: timedelta, left: timedelta, timeout: timedelta) -> str:
    """Returns what a job with so many GPUs is told before it is stopped. `left`: until then."""
    return (
        f"{_unused(devices)} for {_rounded(lasted)}; if that goes on, the job is stopped in {_rounded(left)} "
        f"(idle_timeout {format_duration(timeout)})"
    )


def stopped(*, devices: int, timeout: timedelta) -> str:
    """Returns why a job with so many GPUs was stopped."""
    return f"{_unused(devices)} for {format_duration(timeout)} (idle_timeout)"


def _unused(devices: int) -> str:
    return f"{'its GPU was' if devices == 1 else f'all {devices} GPUs were'} used below {IDLE_BELOW:.0%}"


def _rounded(value: timedelta) -> str:
    """Writes a duration in minutes, unless it is short."""
    unit = _MINUTE if value >= 2 * _MINUTE else timedelta(seconds=1)
    return format_duration(round(value / unit) * unit)
