"""The sentences about when a waiting job starts."""

from collections.abc import Generator
from datetime import UTC, datetime, timedelta
import re
import time

import pytest

from tests.torchyard.cli.answered import run
from tests.torchyard.client.answers import JOB, job, page
from tests.torchyard.client.answers import NOW as NOW_TEXT
from tests.torchyard.client.fake_server import FakeServer
from torchyard.cli import estimates
from torchyard.contract.queue.views import EstimateView

NOW = datetime(2026, 11, 27, 13, 0, tzinfo=UTC)
LOW, EXPECTED, HIGH = (NOW + timedelta(minutes=minutes) for minutes in (10, 20, 40))


@pytest.fixture(autouse=True)
def one_hour_ahead(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Lets local time be one hour ahead of UTC."""
    monkeypatch.setenv("TZ", "XXX-1")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def estimate(
    *,
    expected: datetime | None = EXPECTED,
    low: datetime | None = LOW,
    high: datetime | None = HIGH,
    age: timedelta = timedelta(0),
    held: int = 158,
    of: int = 200,
) -> EstimateView:
    return EstimateView(expected=expected, low=low, high=high, made_at=NOW - age, held=held, of=of)


@pytest.mark.parametrize(
    ("found", "sentence", "short"),
    [
        (estimate(), "between 14:10 and 14:40; 79% of the last 200 estimates were right", "14:10-14:40"),
        (
            estimate(low=None, high=None, held=0, of=12),
            "about 14:20; low confidence",
            "about 14:20",
        ),
        (estimate(expected=None, low=HIGH, high=None, held=0, of=0), "after 14:40", "after 14:40"),
        (estimate(expected=None, low=None, high=None, held=0, of=0), "", ""),
        (
            estimate(age=timedelta(minutes=12, seconds=50)),
            "between 14:10 and 14:40; 79% of the last 200 estimates were right (estimated 12 minutes ago)",
            "14:10-14:40",
        ),
        (
            estimate(expected=None, low=HIGH, high=None, age=timedelta(hours=5)),
            "after 14:40 (estimated 5 hours ago)",
            "after 14:40",
        ),
        (
            estimate(low=NOW + timedelta(days=1), high=NOW + timedelta(days=1, hours=1), held=1, of=3),
            "between 28 Nov 14:00 and 15:00; low confidence",
            "28 Nov 14:00-15:00",
        ),
        (
            estimate(high=NOW + timedelta(hours=10)),
            "between 14:10 and 28 Nov 00:00; 79% of the last 200 estimates were right",
            "14:10-28 Nov 00:00",
        ),
        (
            estimate(low=EXPECTED, high=EXPECTED + timedelta(seconds=59), of=200, held=200),
            "about 14:20; 100% of the last 200 estimates were right",
            "about 14:20",
        ),
        (estimate(expected=None, low=NOW + timedelta(days=60), high=None), "after 26 Jan 2027 14:00", None),
        (estimate(age=timedelta(days=3), of=0, held=0, low=None, high=None), None, "about 14:20"),
    ],
)
def test_an_estimate_is_said_in_local_time(found: EstimateView, sentence: str | None, short: str | None) -> None:
    if sentence is not None:
        assert estimates.sentence(found, now=NOW) == sentence
    if short is not None:
        assert estimates.short(found, now=NOW) == short


@pytest.mark.parametrize(
    ("age", "said"),
    [
        (timedelta(minutes=5), None),
        (timedelta(minutes=5, seconds=1), "5 minutes"),
        (timedelta(minutes=119), "119 minutes"),
        (timedelta(hours=47), "47 hours"),
        (timedelta(hours=72), "3 days"),
        (timedelta(minutes=-5), None),
    ],
)
def test_an_old_estimate_says_its_age(age: timedelta, said: str | None) -> None:
    found = estimates.sentence(estimate(age=age), now=NOW)
    assert ("estimated" in found) is (said is not None)
    assert said is None or found.endswith(f"(estimated {said} ago)")


def test_without_an_estimate_a_table_says_nothing() -> None:
    assert estimates.short(None) == ""


def test_queue_why_and_show_say_when_a_job_may_start(server: FakeServer) -> None:
    now = datetime.now(UTC)
    told = estimate(expected=None, low=now + timedelta(days=400), high=None, held=0, of=0).model_copy(
        update={"made_at": now}
    )
    shown, written = estimates.short(told), told.model_dump(mode="json")
    assert shown.startswith("after ")
    entry = {"position": 301, "job_id": "job_1", "name": "a", "owner": "eve", "priority": 0, "resources": {}}
    server.on("/v1/queue", page([{**entry, "reason": None, "created_at": NOW_TEXT, "estimate": written}]))
    heading, line = run(server, "queue").stdout.splitlines()
    assert line.index(shown) == heading.index("STARTS")
    reason = {"code": "waiting", "message": "waits", "position": 301, "since": NOW_TEXT, "estimate": written}
    server.on(JOB, job(status_reason=reason))
    server.on("/v1/workers", page([]))
    server.on(f"{JOB}/checkpoints", page([]))
    server.on(f"{JOB}/advice", {"headline": "waits", "severity": "info"})
    server.on("/v1/jobs", page([]))
    for command in ("why", "show"):
        done = run(server, command, "job_1")
        assert re.search(rf"^starts +{shown}$", done.stdout, re.MULTILINE), done.stdout + done.stderr
