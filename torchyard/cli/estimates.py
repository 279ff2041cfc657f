"""Says when a waiting job is expected to start, in the local time of who reads it. The page has the same sentences."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from torchyard.cli import output

if TYPE_CHECKING:
    from torchyard.contract.queue.views import EstimateView

_ENOUGH = 20
"""With fewer outcomes of earlier estimates, an estimate is of low confidence."""
_FRESH = timedelta(minutes=5)
"""An estimate that is older says so."""


def sentence(estimate: EstimateView, *, now: datetime | None = None) -> str:
    """Returns such as `between 14:10 and 14:40; 79% of the last 200 estimates were right`.

    Empty: nothing is expected yet.
    """
    now = now or datetime.now(UTC)
    when = _when(estimate, now)
    return when and f"{when}{_record(estimate)}{_age(estimate, now)}"


def short(estimate: EstimateView | None, *, now: datetime | None = None) -> str:
    """Returns it for a table: `14:10-14:40`, `after 14:40`, `about 14:20`; empty without an estimate."""
    return "" if estimate is None else _when(estimate, now or datetime.now(UTC), words=("", "-"))


def _when(estimate: EstimateView, now: datetime, *, words: tuple[str, str] = ("between ", " and ")) -> str:
    expected, low, high = estimate.expected, estimate.low, estimate.high
    if expected is None:
        return "" if low is None else f"after {_clock(low, now)}"
    if low is None or high is None:
        return f"about {_clock(expected, now)}"
    first, last = _clock(low, now), _clock(high, now)
    if first == last:
        return f"about {first}"
    if low.astimezone().date() == high.astimezone().date():
        last = _minute(high)
    before, between = words
    return f"{before}{first}{between}{last}"


def _record(estimate: EstimateView) -> str:
    if estimate.expected is None:
        return ""
    if estimate.of < _ENOUGH:
        return "; low confidence"
    return f"; {100 * estimate.held / estimate.of:.0f}% of the last {estimate.of} estimates were right"


def _age(estimate: EstimateView, now: datetime) -> str:
    age = now - estimate.made_at
    if age <= _FRESH:
        return ""
    minutes = age // timedelta(minutes=1)
    number, unit = (minutes, "minute") if minutes < 120 else (minutes // 60, "hour")
    number, unit = (number // 24, "day") if unit == "hour" and number >= 48 else (number, unit)
    return f" (estimated {output.count(number, unit)} ago)"


def _clock(moment: datetime, now: datetime) -> str:
    """Returns `14:10`, and of another day `28 Nov 14:10`."""
    local, today = moment.astimezone(), now.astimezone()
    if local.date() == today.date():
        return _minute(moment)
    year = "" if local.year == today.year else f" {local.year}"
    return f"{local.day} {local:%b}{year} {_minute(moment)}"


def _minute(moment: datetime) -> str:
    return f"{moment.astimezone():%H:%M}"
