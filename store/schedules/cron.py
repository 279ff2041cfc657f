"""The times of a schedule. Each is a minute of its time zone's clock.

In an hour that a clock shows twice, a schedule of fixed hours is due in the first, and one of every hour (`*`) in both.
Of the times in an hour that a clock leaves out, the first of a schedule of fixed hours is due an hour later: 2:30 at
3:30. One of every hour has none there.
"""

from datetime import UTC, datetime, timedelta
import re
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from torchyard.contract.errors import FieldError, InvalidSpec
from torchyard.contract.spec.schedule import Schedule

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MINUTE = timedelta(minutes=1)
_RANDOM = re.compile("(?<![a-z])[rh](?![a-z])", re.IGNORECASE)
"""Matches what croniter replaces by a number of its choice."""


def next_after(schedule: Schedule, time: int) -> int | None:
    """Returns the first time of the schedule after this one, in microseconds; None if none before its end is left.

    Raises InvalidSpec for what is no cron text or no time zone here.
    """
    zone = _find_zone(schedule.timezone)
    due = _find_next(schedule.cron, zone, _EPOCH + timedelta(microseconds=time))
    if due is None or (schedule.until is not None and due > schedule.until):
        return None
    return (due - _EPOCH) // _MICROSECOND


def check(schedule: Schedule, now: int) -> int:
    """Returns what `next_after` returns. Raises InvalidSpec where that returns None, too."""
    due = next_after(schedule, now)
    if due is None:
        field, end = ("cron", "") if schedule.until is None else ("until", f" before {schedule.until.isoformat()}")
        raise _invalid(field, f"{schedule.cron!r} never occurs{end}")
    return due


def _find_next(cron: str, zone: ZoneInfo, after: datetime) -> datetime | None:
    every_hour = cron.split()[1].startswith("*")
    return _next_of_every_hour(cron, zone, after) if every_hour else _next_of_hours(cron, zone, after)


def _next_of_hours(cron: str, zone: ZoneInfo, after: datetime) -> datetime | None:
    shown = after.astimezone(zone).replace(tzinfo=None)
    while (following := _next_on_clock(cron, shown)) is not None:
        due = following.replace(tzinfo=zone).astimezone(UTC)
        if due > after:  # the second time that a clock shows it is none of the schedule's
            return due
        shown = following
    return None


def _next_of_every_hour(cron: str, zone: ZoneInfo, after: datetime) -> datetime | None:
    offset = _offset_at(zone, after)
    while (shown := _next_on_clock(cron, (after + offset).replace(tzinfo=None))) is not None:
        due = shown.replace(tzinfo=UTC) - offset
        if _offset_at(zone, due) == offset:
            return due
        change = _find_change(zone, after, due, offset)
        after, offset = change - _MICROSECOND, _offset_at(zone, change)
    return None


def _find_change(zone: ZoneInfo, before: datetime, after: datetime, offset: timedelta) -> datetime:
    """Returns the minute at which the clock is set, which has this offset `before` and another one `after`."""
    first, last = (before - _EPOCH) // _MINUTE, (after - _EPOCH) // _MINUTE
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (middle, last) if _offset_at(zone, _EPOCH + middle * _MINUTE) == offset else (first, middle)
    return _EPOCH + last * _MINUTE


def _next_on_clock(cron: str, after: datetime) -> datetime | None:
    """Returns the next time of a clock that is never set; None if there is none in the next years."""
    from croniter import CroniterBadDateError, CroniterError, croniter  # most programs need none of it

    if _RANDOM.search(cron):
        raise _invalid("cron", "a schedule cannot have random parts (R, H)")
    try:
        return croniter(cron, after).get_next(datetime)
    except CroniterBadDateError:
        return None
    except (CroniterError, ValueError) as error:
        raise _invalid("cron", f"is not a cron expression: {error}") from None


def _offset_at(zone: ZoneInfo, time: datetime) -> timedelta:
    return time.astimezone(zone).utcoffset() or timedelta()


def _find_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise _invalid("timezone", f"there is no time zone {name!r}: write one such as UTC or Europe/Berlin") from None


def _invalid(field: str, message: str) -> InvalidSpec:
    return InvalidSpec("the schedule is not valid", errors=(FieldError(f"schedule.{field}", message),))
