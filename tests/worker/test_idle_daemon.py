"""The daemon makes estimates while it is idle, and no claim waits for them."""

from collections.abc import Callable, Generator
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import select

from scheduling.replay import Reached
from scheduling.snapshot import Snapshot
from store.announcement import Announcement
from store.attempts.facts import Claim
from store.cluster import workers
from store.queue.announcing import WakeupListener
from store.tables import Estimate, ForecastLease
from store.worker.placing import Placer
from tests.worker.attempt import wait_for
from tests.worker.test_daemon import DaemonFixture, fixture, serving
from torchyard.contract.states import JobState
from worker.daemon import Daemon
from worker.placement import forecaster
from worker.placement.forecaster import Forecaster

__all__ = ["fixture"]


def estimated(fixture: DaemonFixture) -> list[str]:
    return fixture.store.read(lambda session: [*session.scalars(select(Estimate.job_id))])


def full(fixture: DaemonFixture) -> tuple[Daemon, Claim, str]:
    """Returns a daemon on whose slots jobs run, the attempt of one of them, and a job that waits."""
    daemon = fixture.daemon()
    claim, _ = fixture.running(daemon, "cpu-0")
    fixture.running(daemon, "cpu-1")
    return daemon, claim, fixture.submit()


@pytest.mark.thorough
@pytest.mark.parametrize("redis", [True, pytest.param(False, marks=pytest.mark.thorough)], ids=["redis", "no redis"])
def test_waiting_jobs_are_estimated_until_the_daemon_stops(fixture: DaemonFixture, redis: bool) -> None:
    if not redis:
        fixture.redis_url = "unix:///nowhere/redis.sock"
    daemon, _, waits = full(fixture)
    with serving(daemon):
        wait_for(lambda: estimated(fixture) == [waits], "the estimate")
    lease = fixture.store.read(lambda session: session.get_one(ForecastLease, 1))
    assert (lease.holder, lease.until) == (daemon.id, 0), "it gave the lease back"


def test_a_daemon_that_drains_makes_no_estimates(fixture: DaemonFixture) -> None:
    daemon = fixture.daemon()
    fixture.store.write(lambda session: workers.register(session, daemon.id, name="box", devices=[]))
    fixture.store.drain(daemon.id)
    waits = fixture.submit()
    with serving(daemon):
        wait_for(lambda: fixture.store.reason(waits).code != "waiting", "its reason")
    assert fixture.store.read(lambda session: session.get(ForecastLease, 1)) is None


def test_a_pass_follows_each_wake_up_although_a_replay_goes_on(
    fixture: DaemonFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    _note(monkeypatch, WakeupListener, "wait", lambda woken: done.append("woken") if woken else None)
    _note(monkeypatch, Placer, "anything_waits", lambda _: done.append("pass"))
    _note(monkeypatch, Forecaster, "work", lambda _: done.append("slice"))
    monkeypatch.setattr(forecaster, "replay", _endless)
    daemon, claim, waits = full(fixture)
    with serving(daemon):
        wait_for(lambda: done.count("slice") > 3, "a replay that goes on")
        fixture.store.cancel(claim.job_id)
        fixture.queue.announce(Announcement(wakes_workers=True))
        wait_for(lambda: fixture.state(waits) == JobState.FAILED, "the job that waited has started")
        following = [after for what, after in pairwise(list(done)) if what == "woken"]
    assert set(following) == {"pass"}
    assert estimated(fixture) == []


def _endless(snapshot: Snapshot) -> Generator[Reached]:
    while True:
        yield Reached(snapshot.now, {})


def _note(monkeypatch: pytest.MonkeyPatch, cls: type, name: str, note: Callable[[Any], object]) -> None:
    """Has `note` called with what the method returns."""
    method = getattr(cls, name)

    def noted(*arguments: Any, **named: Any) -> Any:
        found = method(*arguments, **named)
        note(found)
        return found

    monkeypatch.setattr(cls, name, noted)
