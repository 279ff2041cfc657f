"""The times of schedules: on any day, and where a clock is set (docs/sweeps.md says what is promised)."""

from datetime import UTC, datetime

import pytest

from store.schedules import cron
from torchyard.contract.spec.schedule import Schedule

BERLIN, LORD_HOWE = "Europe/Berlin", "Australia/Lord_Howe"
DUE: dict[str, tuple[str, str, str, list[str]]] = {
    "the last day of a month": ("0 3 L * *", "UTC", "2026-02-01 00:00", ["2026-02-28 03:00", "2026-03-31 03:00"]),
    "either day, if both are given": ("0 0 13 * fri", "UTC", "2026-01-09 12:00", ["2026-01-13 00:00"]),
    "either day, with a step": ("0 0 */2 * 1", "UTC", "2026-01-01 00:00", ["2026-01-03 00:00", "2026-01-05 00:00"]),
    "a range over the end of the week": ("0 3 * * FRI-MON", "UTC", "2026-01-05 00:00", ["2026-01-05 03:00"]),
    "the last Friday": ("0 3 * * L5", "UTC", "2026-01-01 00:00", ["2026-01-30 03:00"]),
    "a day left open": ("0 3 ? * 1", "UTC", "2026-01-01 00:00", ["2026-01-05 03:00"]),
    "left out, one hour later": ("30 2 * * *", BERLIN, "2026-03-28 12:00", ["2026-03-29 01:30", "2026-03-30 00:30"]),
    "left out, once": ("*/30 2 * * *", BERLIN, "2026-03-28 12:00", ["2026-03-29 01:00", "2026-03-30 00:00"]),
    "shown twice, at the first": ("30 2 * * *", BERLIN, "2026-10-24 12:00", ["2026-10-25 00:30", "2026-10-26 01:30"]),
    "shown twice, asked between": ("15 2,3 * * *", BERLIN, "2026-10-25 01:14", ["2026-10-25 02:15"]),
    "each hour that is shown twice": (
        "30 * * * *",
        BERLIN,
        "2026-10-25 00:00",
        ["2026-10-25 00:30", "2026-10-25 01:30"],
    ),
    "each hour but one": ("30 * * * *", BERLIN, "2026-03-29 00:00", ["2026-03-29 00:30", "2026-03-29 01:30"]),
    "a clock set by half an hour": ("0 */6 * * *", LORD_HOWE, "2026-04-04 14:30", ["2026-04-04 19:30"]),
}
"""A cron text, a time zone, when one asks, and the next times, in UTC."""


@pytest.mark.parametrize(("text", "zone", "asked", "due"), DUE.values(), ids=DUE)
def test_a_time_of_a_schedule_is_a_minute_of_its_clock(text: str, zone: str, asked: str, due: list[str]) -> None:
    schedule, time = Schedule(cron=text, timezone=zone), _microseconds(asked)
    times: list[str] = []
    for _ in due:
        following = cron.next_after(schedule, time)
        assert following is not None and following > time
        times.append(f"{datetime.fromtimestamp(following / 1_000_000, UTC):%Y-%m-%d %H:%M}")
        time = following
    assert times == due


def _microseconds(text: str) -> int:
    return round(datetime.fromisoformat(f"{text}+00:00").timestamp() * 1_000_000)
