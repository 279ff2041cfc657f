"""What is asked of a job, and what the end of its attempt makes of it."""

import pytest

from store import intents
from store.intents import wanted
from tests.store.yard import Yard, checkpoint
from torchyard.errors import Conflict, NotFound
from torchyard.job import CRASH_LOOP_CAP, EndReason, JobState


def test_a_waiting_job_is_paused_at_once_and_resumed_into_the_queue(yard: Yard) -> None:
    job_id = yard.submit()
    assert yard.pause(job_id).state == JobState.PAUSED
    assert yard.claim(job_id, yard.worker()) is None
    assert yard.pause(job_id).version == yard.job(job_id).version
    job = yard.resume(job_id)
    assert (job.state, job.pause_requested_at) == (JobState.QUEUED, None)
    assert yard.resume(job_id).version == job.version
    assert yard.moves(job_id) == ["queued", "paused", "queued"]


def test_a_running_job_is_asked_and_paused_by_the_end_of_its_attempt(yard: Yard) -> None:
    worker = yard.worker()
    claim = yard.running(yard.submit(), worker)
    before = yard.job(claim.job_id).version
    job = yard.pause(claim.job_id)
    assert (job.state, job.reason_code, wanted(job)) == (JobState.RUNNING, "stopping", EndReason.PAUSED)
    assert job.version == before + 1
    assert yard.pause(claim.job_id).version == job.version
    assert yard.end(claim, EndReason.PAUSED) is JobState.PAUSED
    job = yard.job(claim.job_id)
    assert (job.finished_at, job.barren, job.restarts, job.not_before) == (None, 0, 0, None)
    assert yard.held() == {}
    yard.resume(claim.job_id)
    assert yard.starting(claim.job_id, worker).number == 2


def test_a_pause_that_is_taken_back_lets_the_job_wait_for_its_turn(yard: Yard) -> None:
    claim = yard.running(yard.submit(), yard.worker())
    yard.pause(claim.job_id)
    assert wanted(yard.resume(claim.job_id)) is None
    assert yard.end(claim, EndReason.PAUSED) is JobState.QUEUED
    job = yard.job(claim.job_id)
    assert (job.reason_code, job.not_before, job.restarts) == ("resumed", None, 0)


@pytest.mark.parametrize(
    ("reason", "ends"),
    [
        (EndReason.COMPLETED, JobState.SUCCEEDED),
        (EndReason.DATA_ERROR, JobState.FAILED),
        (EndReason.USER_ERROR, JobState.PAUSED),
        (EndReason.PREEMPTED, JobState.PAUSED),
        (EndReason.WORKER_LOST, JobState.PAUSED),
    ],
)
def test_an_attempt_that_ends_otherwise_before_it_could_pause(yard: Yard, reason: EndReason, ends: JobState) -> None:
    claim = yard.running(yard.submit(max_restarts=1), yard.worker())
    yard.pause(claim.job_id)
    assert yard.end(claim, reason) is ends
    assert yard.job(claim.job_id).restarts == (reason is EndReason.USER_ERROR)


def test_a_failure_that_used_up_the_restarts_is_no_pause(yard: Yard) -> None:
    claim = yard.running(yard.submit(max_restarts=0), yard.worker())
    yard.pause(claim.job_id)
    assert yard.end(claim, EndReason.USER_ERROR) is JobState.FAILED


@pytest.mark.parametrize("reason", [EndReason.PAUSED, EndReason.PREEMPTED, EndReason.WORKER_LOST])
def test_a_cancel_is_stronger_than_a_pause_and_neither_is_taken_back(yard: Yard, reason: EndReason) -> None:
    claim = yard.running(yard.submit(), yard.worker())
    yard.pause(claim.job_id)
    assert wanted(yard.cancel(claim.job_id)) is EndReason.CANCELLED
    for ask in (yard.pause, yard.resume):
        with pytest.raises(Conflict, match="is being cancelled"):
            ask(claim.job_id)
    assert yard.end(claim, reason) is JobState.CANCELLED
    for ask in (yard.pause, yard.resume):
        with pytest.raises(Conflict, match="has already cancelled"):
            ask(claim.job_id)


def test_a_paused_job_is_cancelled_at_once(yard: Yard) -> None:
    job_id = yard.submit()
    yard.pause(job_id)
    assert yard.cancel(job_id).state == JobState.CANCELLED
    assert yard.moves(job_id) == ["queued", "paused", "cancelled"]


def test_another_users_job_is_neither_paused_nor_resumed(yard: Yard) -> None:
    job_id = yard.submit(owner="ada")
    for ask in (intents.request_pause, intents.resume):
        with pytest.raises(NotFound):
            yard.write(lambda session, ask=ask: ask(session, job_id, owner="eve"))


def test_pauses_are_no_crash_loop(yard: Yard) -> None:
    job_id, worker = yard.submit(), yard.worker()
    for _ in range(CRASH_LOOP_CAP + 1):
        claim = yard.running(job_id, worker)
        yard.pause(job_id)
        assert yard.end(claim, EndReason.PAUSED) is JobState.PAUSED
        assert yard.resume(job_id).not_before is None


def test_a_retry_that_is_held_back_says_for_how_long(yard: Yard) -> None:
    claim = yard.running(yard.submit(), yard.worker())
    yard.end(claim, EndReason.WORKER_LOST, "the host was restarted")
    job = yard.job(claim.job_id)
    assert job.not_before is not None
    expected = "attempt 1 ended (worker_lost): the host was restarted; the next one starts 1 s later at the earliest"
    assert job.reason_message == expected


def test_lower_priorities_make_room_all_or_none(yard: Yard) -> None:
    worker = yard.worker()
    one = yard.running(yard.submit(preemptible=True, priority=1), worker, "a")
    two = yard.running(yard.submit(preemptible=True, priority=2), worker, "b")
    firm = yard.running(yard.submit(priority=1), worker, "c")
    high, equal = yard.submit(priority=5), yard.submit(priority=2)
    assert not yard.preempt(one.job_id, firm.job_id, in_favour_of=high), "a job that may not be preempted"
    assert not yard.preempt(one.job_id, two.job_id, in_favour_of=equal), "one whose priority is no lower"
    assert [holder.stopping for holder in yard.read(lambda session: intents.holders(session, worker))] == [False] * 3
    assert yard.preempt(one.job_id, two.job_id, in_favour_of=high)
    assert not yard.preempt(one.job_id, two.job_id, in_favour_of=high), "room for it is being made already"
    assert wanted(yard.job(one.job_id)) is EndReason.PREEMPTED

    yard.record(one, seq=0, checkpoints=[checkpoint("c", step=1)])
    assert yard.end(one, EndReason.PREEMPTED) is JobState.QUEUED
    job = yard.job(one.job_id)
    assert (job.preempt_requested_at, job.preempted_for, job.restarts, job.not_before) == (None, None, 0, None)


def test_no_room_is_made_for_a_job_that_waits_no_more(yard: Yard) -> None:
    worker = yard.worker()
    low = yard.running(yard.submit(preemptible=True), worker, "a")
    high = yard.submit(priority=5)
    yard.running(high, worker, "b")
    assert not yard.preempt(low.job_id, in_favour_of=high)
    assert not yard.preempt(low.job_id, in_favour_of="job_gone")


def test_a_draining_worker_claims_nothing(yard: Yard) -> None:
    worker, job_id = yard.worker(), yard.submit()
    yard.drain(worker)
    assert yard.claim(job_id, worker) is None
    assert yard.moves(job_id) == ["queued"]
    yard.drain(worker, drain=False)
    assert yard.starting(job_id, worker).number == 1
