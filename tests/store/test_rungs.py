"""A trial whose attempts pause by themselves, waits, and is promoted; what else may happen at that moment."""

import pytest

from tests.approved import Approved
from tests.databases import quick_on_sqlite
from tests.store.fixture import StoreFixture
from torchyard.contract.states import EndReason, JobState


def _at_rung(db: StoreFixture, worker: str) -> str:
    job_id = db.submit()
    db.pause_at(job_id, epochs=3)
    assert db.end(db.running(job_id, worker), EndReason.PAUSED, asked=False) is JobState.PAUSED
    return job_id


@quick_on_sqlite
def test_a_trial_that_has_paused_by_itself_waits_for_its_promotion(db: StoreFixture, approved: Approved) -> None:
    worker = db.worker()
    job_id = _at_rung(db, worker)
    job = db.job(job_id)
    assert (job.reason_code, job.reason_message) == ("rung", approved("reason_message"))
    assert (job.pause_requested_at, job.attempts_without_checkpoint, job.restarts) == (None, 0, 0)
    assert db.held() == {}

    assert db.promote(job_id, epochs=9)
    assert not db.promote(job_id, epochs=27)
    job = db.job(job_id)
    assert (job.state, job.pause_at) == (JobState.QUEUED, {"epochs": 9})
    assert db.end(db.running(job_id, worker), EndReason.PAUSED, asked=False) is JobState.PAUSED
    assert db.promote(job_id)
    assert db.job(job_id).pause_at is None
    db.complete(db.running(job_id, worker))
    assert db.job(job_id).state == JobState.SUCCEEDED
    assert db.moves(job_id) == [
        "queued",
        *["starting", "running", "paused", "queued"] * 2,
        "starting",
        "running",
        "succeeded",
    ]


def test_a_job_without_a_point_cannot_pause_by_itself(db: StoreFixture) -> None:
    claim = db.running(db.submit(), db.worker())
    assert db.end(claim, EndReason.PAUSED, "forged", asked=False) is JobState.QUEUED
    assert db.attempt(claim).end_reason == EndReason.WORKER_LOST
    assert not db.promote(claim.job_id, epochs=9)


def test_its_owner_lets_it_go_on_to_its_end(db: StoreFixture) -> None:
    worker = db.worker()
    job_id = _at_rung(db, worker)
    job = db.resume(job_id)
    assert (job.state, job.pause_at) == (JobState.QUEUED, None)


def test_its_owner_keeps_it_from_being_promoted(db: StoreFixture) -> None:
    worker = db.worker()
    job_id = _at_rung(db, worker)
    job = db.pause(job_id)
    assert (job.state, job.reason_code) == (JobState.PAUSED, "paused")
    assert not db.promote(job_id, epochs=9)
    job = db.resume(job_id)
    assert (job.state, job.pause_at) == (JobState.QUEUED, {"epochs": 3})
    assert db.end(db.running(job_id, worker), EndReason.PAUSED, asked=False) is JobState.PAUSED
    assert db.job(job_id).reason_code == "rung"


def test_a_trial_that_waits_can_be_cancelled(db: StoreFixture) -> None:
    job_id = _at_rung(db, db.worker())
    assert db.cancel(job_id).state == JobState.CANCELLED
    assert not db.promote(job_id, epochs=9)


@pytest.mark.parametrize("request_of", ["cancel", "pause"])
def test_a_request_of_its_owner_comes_first(db: StoreFixture, request_of: str) -> None:
    job_id = db.submit()
    db.pause_at(job_id, steps=10)
    claim = db.running(job_id, db.worker())
    (db.cancel if request_of == "cancel" else db.pause)(job_id)
    ended = db.end(claim, EndReason.PAUSED, asked=False)
    assert ended is (JobState.CANCELLED if request_of == "cancel" else JobState.PAUSED)
    assert db.job(job_id).reason_code == ("cancelled" if request_of == "cancel" else "paused")
    assert not db.promote(job_id, steps=30)


def test_a_pause_that_was_withdrawn_too_late_is_no_rung(db: StoreFixture) -> None:
    job_id = db.submit()
    db.pause_at(job_id, steps=10)
    claim = db.running(job_id, db.worker())
    db.pause(job_id)
    db.resume(job_id)
    assert db.end(claim, EndReason.PAUSED, asked=True) is JobState.QUEUED
    assert db.job(job_id).pause_at == {"steps": 10}


@pytest.mark.parametrize("reason", [EndReason.KILLED, EndReason.OUT_OF_MEMORY, EndReason.WORKER_LOST])
def test_another_end_is_tried_again_up_to_the_same_point(db: StoreFixture, reason: EndReason) -> None:
    job_id = db.submit(max_restarts=2)
    db.pause_at(job_id, epochs=3)
    assert db.end(db.running(job_id, db.worker()), reason, asked=False) is JobState.QUEUED
    assert db.job(job_id).pause_at == {"epochs": 3}
