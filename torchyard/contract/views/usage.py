"""The JSON of what users had of the devices. Days are those of UTC."""

from datetime import date

from torchyard.contract.views.base import View


class UsageFigures(View):
    """What was held. An hour of two devices is two device-hours."""

    gpu_hours: float
    cpu_slot_hours: float
    gpu_utilization: float | None
    """The mean of the GPUs while they were held, 0…1. Null: none was measured."""
    idle_gpu_hours: float
    """Of the measured ones, those with a utilization below 5%."""


class UsageDay(UsageFigures):
    day: date


class UsageRow(View):
    """What one user had, in all or in jobs with one label."""

    owner: str
    label: str | None
    """As `key=value`. Null: all jobs. A job with two labels counts for both."""
    days: list[UsageDay]
    """Of the asked days, those on which it had devices, the earliest first."""
    period: UsageFigures
    """Of the asked days together."""
    total: UsageFigures
    """Of all days, also earlier ones."""
