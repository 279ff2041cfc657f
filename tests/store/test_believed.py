"""What an attempt's report may claim, and which retries end."""

from datetime import timedelta

import pytest
from sqlalchemy import update

from store.db.database import now_us
from store.db.tables import Attempt
from store.rows.attempts import Claim
from tests.store.yard import Yard, checkpoint
from torchyard.contract.job import CRASH_LOOP_CAP, EndReason, JobState

STOPS = [EndReason.CANCELLED, EndReason.PAUSED, EndReason.PREEMPTED]


@pytest.mark.parametrize("reason", STOPS)
def test_a_stop_that_nobody_asked_for_is_a_lost_worker(yard: Yard, reason: EndReason) -> None:
    claim = yard.running(yard.submit(max_restarts=0), yard.worker())
    assert yard.end(claim, reason, "forged", asked=False) is JobState.QUEUED
    job = yard.job(claim.job_id)
    assert (job.attempts_without_checkpoint, job.restarts, job.not_before is not None) == (1, 0, True)
    assert yard.attempt(claim).end_reason == EndReason.WORKER_LOST
    assert "(worker_lost): it stopped, though nobody asked it to: forged" in job.reason_message


@pytest.mark.parametrize("reason", STOPS)
def test_a_stop_that_nobody_asked_for_ends_at_the_crash_loop_cap(yard: Yard, reason: EndReason) -> None:
    job_id, worker = yard.submit(max_restarts=0), yard.worker()
    for _ in range(CRASH_LOOP_CAP - 1):
        assert yard.end(yard.running(job_id, worker), reason, asked=False) is JobState.QUEUED
    assert yard.end(yard.running(job_id, worker), reason, asked=False) is JobState.FAILED


def test_a_stop_is_believed_where_the_rows_tell_of_it(yard: Yard) -> None:
    worker, high = yard.worker(), yard.submit(priority=5)
    paused, cancelled = yard.running(yard.submit(), worker, "a"), yard.running(yard.submit(), worker, "b")
    preempted = yard.running(yard.submit(preemptible=True), worker, "c")
    yard.pause(paused.job_id)
    yard.cancel(cancelled.job_id)
    assert yard.preempt(preempted.job_id, preemptor=high)
    assert yard.end(paused, EndReason.PAUSED, asked=False) is JobState.PAUSED
    assert yard.end(cancelled, EndReason.CANCELLED, asked=False) is JobState.CANCELLED
    assert yard.end(preempted, EndReason.PREEMPTED, asked=False) is JobState.QUEUED
    assert [_end_reason(yard, claim) for claim in (paused, cancelled, preempted)] == [
        "paused",
        "cancelled",
        "preempted",
    ]


def test_a_drained_worker_preempts_and_asks_for_nothing_else(yard: Yard) -> None:
    worker = yard.worker()
    stopped, forged = yard.running(yard.submit(), worker, "a"), yard.running(yard.submit(), worker, "b")
    yard.drain(worker)
    assert yard.end(stopped, EndReason.PREEMPTED, asked=False) is JobState.QUEUED
    assert yard.end(forged, EndReason.CANCELLED, asked=False) is JobState.QUEUED
    assert (_end_reason(yard, stopped), _end_reason(yard, forged)) == ("preempted", "worker_lost")


def test_a_supervisor_that_was_told_by_a_signal_calls_any_stop_a_preemption(yard: Yard) -> None:
    claim = yard.running(yard.submit(), yard.worker())
    yard.pause(claim.job_id)
    assert yard.end(claim, EndReason.PREEMPTED, asked=False) is JobState.PAUSED
    assert _end_reason(yard, claim) == "preempted"


def test_a_checkpoint_of_no_later_step_does_not_start_the_count_anew(yard: Yard) -> None:
    job_id, worker = yard.submit(max_restarts=0), yard.worker()
    first = yard.running(job_id, worker)
    yard.record(first, seq=0, checkpoints=[checkpoint("step-5", step=5)])
    yard.end(first, EndReason.WORKER_LOST)
    for number in range(1, CRASH_LOOP_CAP + 1):
        claim = yard.running(job_id, worker)
        yard.record(claim, seq=0, checkpoints=[checkpoint("step-5", step=5)])
        ended = yard.end(claim, EndReason.WORKER_LOST, "lost")
        assert (ended is JobState.FAILED) is (number == CRASH_LOOP_CAP)
    assert yard.job(job_id).reason_message == "lost (10 attempts in a row brought the job no further)"


def test_retries_that_go_further_each_time_end_with_the_time_limit(yard: Yard) -> None:
    job_id, worker = yard.submit(max_restarts=0, time_limit="1h"), yard.worker()
    states: list[JobState] = []
    for step in (1, 2):
        claim = yard.running(job_id, worker)
        yard.record(claim, seq=0, checkpoints=[checkpoint(f"step-{step}", step=step)])
        _ran(yard, claim, timedelta(minutes=30))
        states.append(yard.end(claim, EndReason.WORKER_LOST, "lost"))
    assert states == [JobState.QUEUED, JobState.FAILED]
    error = yard.job(job_id).error
    assert error is not None
    assert error["code"] == "time_limit"
    assert error["message"] == "the job's time limit was reached; its last attempt ended (worker_lost): lost"


@pytest.mark.parametrize("reason", [EndReason.PAUSED, EndReason.PREEMPTED, EndReason.COMPLETED])
def test_a_job_that_was_stopped_or_has_finished_did_not_fail_at_its_time_limit(yard: Yard, reason: EndReason) -> None:
    claim = yard.running(yard.submit(time_limit="1h"), yard.worker())
    _ran(yard, claim, timedelta(hours=2))
    assert yard.end(claim, reason) is not JobState.FAILED


def _ran(yard: Yard, claim: Claim, duration: timedelta) -> None:
    earlier = now_us() - duration // timedelta(microseconds=1)
    moved = update(Attempt).where(Attempt.id == claim.attempt_id).values(started_at=earlier)
    yard.write(lambda session: session.execute(moved))


def _end_reason(yard: Yard, claim: Claim) -> str | None:
    return yard.attempt(claim).end_reason
