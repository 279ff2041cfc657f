"""Which exit reports are accepted, and when retries end."""

from datetime import timedelta

import pytest
from sqlalchemy import update

from store.attempts.facts import Claim
from store.db.database import now_us
from store.tables import Attempt
from tests.approved import Approved
from tests.databases import quick_on_sqlite
from tests.store.fixture import StoreFixture, checkpoint
from torchyard.contract.states import CRASH_LOOP_CAP, EndReason, JobState

STOPS = [EndReason.CANCELLED, EndReason.PAUSED, EndReason.PREEMPTED]


@pytest.mark.parametrize("reason", STOPS)
def test_a_stop_without_a_request_ends_as_worker_lost(db: StoreFixture, reason: EndReason, approved: Approved) -> None:
    claim = db.running(db.submit(max_restarts=0), db.worker())
    assert db.end(claim, reason, "forged", asked=False) is JobState.QUEUED
    job = db.job(claim.job_id)
    assert (job.attempts_without_checkpoint, job.restarts, job.not_before is not None) == (1, 0, True)
    assert db.attempt(claim).end_reason == EndReason.WORKER_LOST
    assert job.reason_message == approved("reason_message")


@pytest.mark.parametrize(
    "reason", [STOPS[0], *(pytest.param(reason, marks=pytest.mark.thorough) for reason in STOPS[1:])]
)
@quick_on_sqlite
def test_stops_without_a_request_end_at_the_crash_loop_cap(db: StoreFixture, reason: EndReason) -> None:
    job_id, worker = db.submit(max_restarts=0), db.worker()
    for _ in range(CRASH_LOOP_CAP - 1):
        assert db.end(db.running(job_id, worker), reason, asked=False) is JobState.QUEUED
    assert db.end(db.running(job_id, worker), reason, asked=False) is JobState.FAILED


@quick_on_sqlite
def test_a_stop_that_the_rows_request_is_accepted(db: StoreFixture) -> None:
    worker, high = db.worker(), db.submit(priority=5)
    paused, cancelled = db.running(db.submit(), worker, "a"), db.running(db.submit(), worker, "b")
    preempted = db.running(db.submit(preemptible=True), worker, "c")
    db.pause(paused.job_id)
    db.cancel(cancelled.job_id)
    assert db.preempt(preempted.job_id, preemptor=high)
    assert db.end(paused, EndReason.PAUSED, asked=False) is JobState.PAUSED
    assert db.end(cancelled, EndReason.CANCELLED, asked=False) is JobState.CANCELLED
    assert db.end(preempted, EndReason.PREEMPTED, asked=False) is JobState.QUEUED
    assert [_end_reason(db, claim) for claim in (paused, cancelled, preempted)] == [
        "paused",
        "cancelled",
        "preempted",
    ]


def test_a_drain_accepts_only_preemptions(db: StoreFixture) -> None:
    worker = db.worker()
    stopped, forged = db.running(db.submit(), worker, "a"), db.running(db.submit(), worker, "b")
    db.drain(worker)
    assert db.end(stopped, EndReason.PREEMPTED, asked=False) is JobState.QUEUED
    assert db.end(forged, EndReason.CANCELLED, asked=False) is JobState.QUEUED
    assert (_end_reason(db, stopped), _end_reason(db, forged)) == ("preempted", "worker_lost")


def test_a_supervisor_stopped_by_a_signal_reports_any_stop_as_a_preemption(db: StoreFixture) -> None:
    claim = db.running(db.submit(), db.worker())
    db.pause(claim.job_id)
    assert db.end(claim, EndReason.PREEMPTED, asked=False) is JobState.PAUSED
    assert _end_reason(db, claim) == "preempted"


@quick_on_sqlite
def test_a_checkpoint_without_a_later_step_does_not_reset_the_count(db: StoreFixture, approved: Approved) -> None:
    job_id, worker = db.submit(max_restarts=0), db.worker()
    first = db.running(job_id, worker)
    db.record(first, seq=0, checkpoints=[checkpoint("step-5", step=5)])
    db.end(first, EndReason.WORKER_LOST)
    for number in range(1, CRASH_LOOP_CAP + 1):
        claim = db.running(job_id, worker)
        db.record(claim, seq=0, checkpoints=[checkpoint("step-5", step=5)])
        ended = db.end(claim, EndReason.WORKER_LOST, "lost")
        assert (ended is JobState.FAILED) is (number == CRASH_LOOP_CAP)
    assert db.job(job_id).reason_message == approved("reason_message")


@quick_on_sqlite
def test_retries_with_progress_end_at_the_time_limit(db: StoreFixture, approved: Approved) -> None:
    job_id, worker = db.submit(max_restarts=0, time_limit="1h"), db.worker()
    states: list[JobState] = []
    for step in (1, 2):
        claim = db.running(job_id, worker)
        db.record(claim, seq=0, checkpoints=[checkpoint(f"step-{step}", step=step)])
        _ran(db, claim, timedelta(minutes=30))
        states.append(db.end(claim, EndReason.WORKER_LOST, "lost"))
    assert states == [JobState.QUEUED, JobState.FAILED]
    error = db.job(job_id).error
    assert error is not None
    assert error["code"] == "time_limit"
    assert error["message"] == approved("message")


@pytest.mark.parametrize("reason", [EndReason.PAUSED, EndReason.PREEMPTED, EndReason.COMPLETED])
def test_a_stopped_or_completed_job_does_not_fail_at_its_time_limit(db: StoreFixture, reason: EndReason) -> None:
    claim = db.running(db.submit(time_limit="1h"), db.worker())
    _ran(db, claim, timedelta(hours=2))
    assert db.end(claim, reason) is not JobState.FAILED


def _ran(db: StoreFixture, claim: Claim, duration: timedelta) -> None:
    earlier = now_us() - duration // timedelta(microseconds=1)
    moved = update(Attempt).where(Attempt.id == claim.attempt_id).values(started_at=earlier)
    db.write(lambda session: session.execute(moved))


def _end_reason(db: StoreFixture, claim: Claim) -> str | None:
    return db.attempt(claim).end_reason
