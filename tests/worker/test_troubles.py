"""An unexpected error in the daemon's own work: it is told, and the work is done again."""

from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
import threading
import time
from typing import Any

import pytest
from sqlalchemy import select

from store.cluster import workers
from store.tables import Worker
from tests.worker.attempt import wait_for
from tests.worker.test_daemon import Clock, DaemonFixture, advance_until, fixture, serving
from tests.worker.test_devices import FakeNvml
from torchyard.contract.cluster.devices import StartsReport, TroubleReport
from torchyard.contract.errors import Unavailable
from torchyard.host import failpoints
from worker.attempts.runners import AttemptRunners
from worker.daemon import Daemon
from worker.devices.inventory import discover
from worker.doctor.daemon import check_daemon
from worker.doctor.findings import Status
from worker.settings import Settings
from worker.troubles import Troubles

__all__ = ["fixture"]

DRAIN = "the look whether this worker drains"


@pytest.fixture
def armed() -> Generator[dict[str, str]]:
    yield {}
    failpoints.arm({})


class Moved:
    """A clock that a test alone moves."""

    def __init__(self, now: Any) -> None:
        self.now = now

    def __call__(self) -> Any:
        return self.now


def told(fixture: DaemonFixture, daemon: Daemon) -> dict[str, TroubleReport]:
    return {one.work: one for one in starts_of(fixture, daemon).troubles}


def starts_of(fixture: DaemonFixture, daemon: Daemon) -> StartsReport:
    """Returns what the last heartbeat has told, as soon as there is one."""
    found: list[StartsReport] = []

    def has_told() -> bool:
        workers = fixture.store.read(lambda session: session.scalars(select(Worker)).all())
        found.extend(StartsReport.from_dict(one.starts) for one in workers if one.id == daemon.id and one.starts)
        return bool(found)

    wait_for(has_told, "a heartbeat")
    return found[0]


def test_a_work_that_failed_three_times_in_a_row_is_failing_until_it_succeeds() -> None:
    now = Moved(datetime(2026, 1, 1, tzinfo=UTC))
    troubles = Troubles(now)
    began = now.now
    states: list[str] = []
    for _ in range(3):
        with troubles.noted("the sweep"):
            raise OSError(5, "Input/output error")
        states.append(troubles.reports()[0].state)
        now.now += timedelta(seconds=10)
    assert states == ["failed", "failed", "failing"]
    (failing,) = troubles.reports()
    assert (failing.since, failing.times) == (began, 3)
    assert failing.problem == "OSError: [Errno 5] Input/output error"
    with troubles.noted("the sweep"):
        pass
    (over,) = troubles.reports()
    assert (over.state, over.since) == ("failed", began + timedelta(seconds=20))
    with troubles.noted("the sweep"):
        raise ValueError
    assert [(one.state, one.times) for one in troubles.reports()] == [("failed", 1)]
    with troubles.noted("the sweep"):
        pass
    now.now += timedelta(minutes=61)
    assert troubles.reports() == []


def test_an_outage_of_the_database_is_no_trouble_of_the_worker() -> None:
    troubles = Troubles()
    with pytest.raises(Unavailable), troubles.noted("the sweep"):
        raise Unavailable("away")
    assert troubles.reports() == []


def test_a_heartbeat_that_fails_is_told_and_sent_again(
    fixture: DaemonFixture, armed: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    daemon = fixture.daemon(clock)
    failpoints.arm({failpoints.VARIABLE: "store.heartbeat.before=error:EIO@2"})
    with serving(daemon):
        advance_until(clock, lambda: "the heartbeat" in told(fixture, daemon), "the report")
        report = told(fixture, daemon)["the heartbeat"]
        assert (report.state, report.times) == ("failed", 1)
        assert report.problem.startswith("OSError: [Errno 5]")
        assert "Traceback" in caplog.text
        settings = Settings(
            data_dir=fixture.folder / "worker",
            database_url=fixture.store.database.engine.url.render_as_string(hide_password=False),
        )
        (finding,) = check_daemon(settings)
        assert (finding.check, finding.status) == ("worker", Status.WARNING)
        assert finding.fact.startswith("the heartbeat failed at ")


def test_a_duty_that_fails_again_and_again_is_told_as_failing_and_stops_no_other(
    fixture: DaemonFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_draining = workers.is_draining

    def broken(*_: object) -> bool:
        raise RuntimeError("dictionary changed size during iteration")

    monkeypatch.setattr(workers, "is_draining", broken)
    clock = Clock()
    daemon = fixture.daemon(clock)
    with serving(daemon):
        job_id = fixture.submit()
        wait_for(lambda: fixture.state(job_id) == "failed", "a job that was started")
        advance_until(
            clock,
            lambda: DRAIN in told(fixture, daemon) and told(fixture, daemon)[DRAIN].state == "failing",
            "the report that it is failing",
        )
        monkeypatch.setattr(workers, "is_draining", is_draining)
        advance_until(clock, lambda: told(fixture, daemon)[DRAIN].state == "failed", "the report that it works")


def test_devices_that_cannot_be_seen_are_offered_to_no_job(
    fixture: DaemonFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml = FakeNvml({"GPU-aaaa": []}, used=0)
    clock = Clock()
    daemon = fixture.daemon(clock, inventory=discover(nvml=nvml, environ={}))
    with serving(daemon):
        starts_of(fixture, daemon)

        def broken(*_: object) -> Any:
            raise ValueError("no such handle")

        monkeypatch.setattr(nvml, "nvmlDeviceGetHandleByUUID", broken)

        def is_blocked() -> bool:
            return "cannot see its devices" in str(fixture.worker_of(daemon).devices[0]["blocked"])

        advance_until(clock, is_blocked, "the device is blocked")
        work = "the observation of the devices"
        advance_until(clock, lambda: work in told(fixture, daemon), "the report")
        assert told(fixture, daemon)[work].problem == "ValueError: no such handle"
        waits = fixture.submit()
        monkeypatch.undo()
        wait_for(lambda: fixture.state(waits) == "failed", "its start")


def test_a_daemon_whose_turns_fail_rests_for_longer_each_time(
    fixture: DaemonFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, turns = Moved(100.0), list[float]()

    def broken(*_: object, **__: object) -> Any:
        turns.append(clock.now)
        raise RuntimeError("broken")

    monkeypatch.setattr(AttemptRunners, "reap", broken)
    daemon = fixture.daemon(clock)  # type: ignore[arg-type]
    thread = threading.Thread(target=daemon.serve)
    thread.start()
    for number in range(1, 6):
        while len(turns) < number:
            clock.now += 0.25
            time.sleep(0.02)
    daemon.leave()
    thread.join(60)
    gaps = [later - earlier for earlier, later in pairwise(turns)]
    assert all(gap >= least for gap, least in zip(gaps, (1.0, 2.0, 4.0, 8.0), strict=False)), gaps


def test_gpus_for_which_the_driver_does_not_answer_are_told_from_the_start(fixture: DaemonFixture) -> None:
    away = FakeNvml({"GPU-aaaa": []}, failing={"init"})
    daemon = fixture.daemon(inventory=discover(2, nvml=away, environ={}, bus=lambda: 4))
    with serving(daemon):
        found = told(fixture, daemon)["the look for GPUs at the start"]
    assert found.state == "failed"
    assert "4 NVIDIA GPUs are not offered: their driver does not respond" in found.problem
