"""What owners had of the devices, by day."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

DAY_US = 86_400_000_000
MOST_DAYS = 366
"""The last days of an attempt, which are counted one by one. What was before them counts for the first of them."""


class Figures(NamedTuple):
    """Microseconds of one device: two devices for a second are 2,000,000. As in `store.tables.DeviceDay`."""

    held_us: int = 0
    measured_us: int = 0
    busy_us: int = 0
    idle_us: int = 0

    def plus(self, other: Self) -> "Figures":
        return Figures(*(one + more for one, more in zip(self, other, strict=True)))


@dataclass(frozen=True)
class Held:
    """What an attempt had of the devices of one kind, from one time of the database's clock to another."""

    kind: str
    devices: int
    began: int
    ended: int
    measured_us: int = 0
    busy_us: int = 0
    idle_us: int = 0

    def by_day(self) -> dict[int, Figures]:
        """Returns its figures by day since the epoch, of UTC. Their sums are exact.

        How well the devices were used is distributed evenly over the time. If it ended before it began, it had nothing.
        """
        whole = self.ended - self.began
        if whole <= 0 or self.devices <= 0:
            return {}
        total = self._total(whole * self.devices)
        last = (self.ended - 1) // DAY_US
        days: dict[int, Figures] = {}
        before = Figures()
        for day in range(max(self.began // DAY_US, last - MOST_DAYS + 1), last + 1):
            us = min(self.ended, (day + 1) * DAY_US) - self.began
            until = Figures(*(figure * us // whole for figure in total))
            days[day] = Figures(*(one - less for one, less in zip(until, before, strict=True)))
            before = until
        return days

    def _total(self, held_us: int) -> Figures:
        # A clock that jumps may have measured more than was held.
        measured = min(self.measured_us, held_us)
        return Figures(held_us, measured, min(self.busy_us, measured), min(self.idle_us, measured))


@dataclass(frozen=True)
class UsageFacts:
    """What an owner had in all, or in jobs with one label."""

    owner: str
    label: str
    """Empty: in all jobs."""
    days: Mapping[int, Mapping[str, Figures]]
    """By day and kind, of the days that were asked for."""
    total: Mapping[str, Figures]
    """By kind, of all days."""
