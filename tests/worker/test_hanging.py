"""A driver or a disk that hangs: no lease is lost for it, and the worker says what hangs."""

from collections.abc import Generator
from datetime import UTC, datetime

import pytest

from store.attempts.facts import Claim
from tests.worker.attempt import wait_for
from tests.worker.test_daemon import Clock, DaemonFixture, advance_until, fixture, serving
from tests.worker.test_troubles import told
from torchyard.contract.states import JobState
from torchyard.host import failpoints
from worker import aside, watch
from worker.attempts import runners

__all__ = ["fixture"]

POINTS = ("driver.read", "disk.space", "disk.removal")
OUTPUT = "output.read"
"""What the daemon itself calls that can hang."""


@pytest.fixture(autouse=True)
def released(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    monkeypatch.setattr(aside, "_PAUSE_S", 0.1)
    yield
    failpoints.arm({})


def hang(*points: str) -> None:
    failpoints.arm({failpoints.VARIABLE: ";".join(f"{point}=hang" for point in points)})


def renewed_again(fixture: DaemonFixture, clock: Clock, claim: Claim) -> None:
    """Waits for four renewals. Without them the lease would have expired."""
    for _ in range(4):
        before = fixture.store.attempt(claim).lease_until
        clock.ahead += 11
        wait_for(lambda before=before: fixture.store.attempt(claim).lease_until > before, "a renewal")


@pytest.mark.parametrize("databases", ["sqlite", pytest.param("postgresql", marks=pytest.mark.thorough)], indirect=True)
def test_a_worker_whose_driver_and_disk_hang_keeps_its_leases_and_tells_it(
    fixture: DaemonFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "SILENT_S", 0.5)
    clock = Clock()
    daemon = fixture.daemon(clock)
    claim, _ = fixture.running(daemon, "cpu-0")
    with serving(daemon):
        wait_for(lambda: fixture.state(claim.job_id) == JobState.RUNNING, "the adoption")
        hang(*POINTS)
        waits = fixture.submit()
        renewed_again(fixture, clock, claim)
        for work in ("the observation of the devices", "the housekeeping"):
            advance_until(
                clock,
                lambda work=work: work in told(fixture, daemon) and told(fixture, daemon)[work].state == "silent",
                f"the report of {work}",
            )
        fixture.store.cancel(claim.job_id)
        wait_for(lambda: fixture.state(claim.job_id) == JobState.CANCELLED, "the owner is heard")
        assert fixture.state(waits) == JobState.QUEUED
        failpoints.arm({})
        wait_for(lambda: fixture.state(waits) == JobState.FAILED, "what waited is started")


@pytest.mark.parametrize("databases", ["sqlite", pytest.param("postgresql", marks=pytest.mark.thorough)], indirect=True)
def test_an_attempt_whose_output_cannot_be_read_keeps_its_lease_is_told_and_can_be_cancelled(
    fixture: DaemonFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "SILENT_S", 0.5)
    monkeypatch.setattr(runners, "LOST_S", 1.0)
    clock = Clock()
    daemon = fixture.daemon(clock)
    claim, attempt = fixture.running(daemon, "cpu-0")
    with serving(daemon):
        wait_for(lambda: fixture.state(claim.job_id) == JobState.RUNNING, "the adoption")
        hang(OUTPUT)
        work = f"the reading of attempt 1 of {claim.job_id}"
        advance_until(clock, lambda: work in told(fixture, daemon), "the report of the reading")
        assert told(fixture, daemon)[work].state == "silent"
        since = told(fixture, daemon)[work].since
        wait_for(lambda: (datetime.now(UTC) - since).total_seconds() > runners.LOST_S + 1, "a long silence")
        renewed_again(fixture, clock, claim)
        fixture.store.cancel(claim.job_id)
        wait_for(lambda: not attempt.running_processes(), "the end of its processes")
        assert fixture.store.attempt(claim).ended_at is None
        failpoints.arm({})
        wait_for(lambda: fixture.state(claim.job_id) == JobState.CANCELLED, "its end")


def test_leases_are_renewed_while_old_attempts_are_ended(fixture: DaemonFixture) -> None:
    clock = Clock()
    daemon = fixture.daemon(clock)
    claim, _ = fixture.running(daemon, "cpu-0")
    lost, old = fixture.running(daemon, "cpu-1")
    wait_for(old.run.supervisor.exists, "the supervisor")
    fixture.store.expire(lost)
    assert fixture.store.rescue(lost)
    log = fixture.folder / "reached"
    failpoints.arm({failpoints.VARIABLE: f"log={log};record.stop.fsync=hang"})
    with serving(daemon):
        wait_for(log.exists, "the end of the old attempt begins")
        wait_for(lambda: fixture.state(claim.job_id) == JobState.RUNNING, "the adoption")
        renewed_again(fixture, clock, claim)
        assert old.running_processes()
        failpoints.arm({})
        wait_for(lambda: not old.running_processes(), "the end of the old attempt")


def test_an_attempt_that_makes_no_turn_is_given_up_and_its_processes_end(
    fixture: DaemonFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    daemon = fixture.daemon(clock)
    claim, attempt = fixture.running(daemon, "cpu-0")
    with serving(daemon):
        wait_for(lambda: fixture.state(claim.job_id) == JobState.RUNNING, "the adoption")
        monkeypatch.setattr(runners, "LOST_S", 1.0)
        failpoints.arm({failpoints.VARIABLE: "record.stop.fsync=hang"})
        fixture.store.pause(claim.job_id)
        wait_for(lambda: not attempt.running_processes(), "its processes are ended")
        assert fixture.store.attempt(claim).ended_at is None
        fixture.store.expire(claim)
        advance_until(clock, lambda: fixture.store.attempt(claim).ended_at is not None, "its rescue")
        failpoints.arm({})
