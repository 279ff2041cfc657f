"""The life of an attempt: claim, running, the fence, and what each end means for the job."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import update
from sqlalchemy.exc import DataError
from sqlalchemy.orm import Session

from store.db.database import now_us
from store.db.tables import Attempt, Job
from store.rows import attempts, waiting
from store.rows.attempts import LEASE, Claim, NewEvent
from store.rows.jobs import Reason
from store.rows.logs import NewLines
from store.rows.metrics import NewPoint
from tests.store.yard import Yard, checkpoint
from torchyard.contract.errors import StaleClaim
from torchyard.contract.job import CRASH_LOOP_CAP, OUTCOMES, EndReason, JobState
from torchyard.contract.records import ExitReport, ProcessIdentity

RETRIED = [reason for reason, outcome in OUTCOMES.items() if outcome.state is JobState.QUEUED]
COUNTED = [reason for reason in RETRIED if OUTCOMES[reason].counted]
UNCOUNTED = [EndReason.WORKER_LOST, EndReason.DEVICE_FAULT]
FINAL = [reason for reason in EndReason if OUTCOMES[reason].state.terminal]
_SECOND_US = 1_000_000


def test_a_claim_takes_the_job_and_its_devices(yard: Yard) -> None:
    job_id, worker = yard.submit(), yard.worker("box-a")
    claim = yard.starting(job_id, worker, "slot-1", "slot-0")

    job, attempt = yard.job(job_id), yard.attempt(claim)
    assert (job.state, job.attempt, claim.number) == (JobState.STARTING, 1, 1)
    assert job.started_at is not None
    assert [device["uuid"] for device in job.devices] == ["slot-1", "slot-0"]
    assert yard.held() == {(worker, "slot-0"): job_id, (worker, "slot-1"): job_id}
    assert attempt.lease_until - attempt.started_at == pytest.approx(LEASE / timedelta(microseconds=1), abs=10_000)
    assert yard.events(job_id)[-1].data["reason"] == {"code": "starting", "message": "attempt 1 starts on box-a"}


def test_a_claim_that_lacks_one_device_takes_nothing(yard: Yard) -> None:
    worker, first, second = yard.worker(), yard.submit(), yard.submit()
    yard.starting(first, worker, "slot-1")
    before = yard.everything()

    assert yard.claim(second, worker, "slot-0", "slot-1") is None
    assert yard.everything() == before
    assert yard.claim(second, worker, "slot-0") is not None


def test_devices_of_the_same_name_on_two_workers_are_two_devices(yard: Yard) -> None:
    one, two = yard.worker("one"), yard.worker("two")
    assert yard.claim(yard.submit(), one, "slot-0") is not None
    assert yard.claim(yard.submit(), two, "slot-0") is not None


@pytest.mark.parametrize("ended", [False, True])
def test_only_a_queued_job_can_be_claimed(yard: Yard, ended: bool) -> None:
    job_id, worker = yard.submit(), yard.worker()
    claim = yard.running(job_id, worker)
    if ended:
        yard.end(claim, EndReason.COMPLETED)
    assert yard.claim(job_id, worker, "slot-1") is None
    assert yard.claim("job_" + "0" * 32, worker, "slot-1") is None


@pytest.mark.parametrize("reason", FINAL)
def test_an_end_that_is_never_retried(yard: Yard, reason: EndReason) -> None:
    job_id, worker = yard.submit(max_restarts=5), yard.worker()
    claim = yard.running(job_id, worker)
    running = yard.job(job_id)

    assert yard.end(claim, reason, "it is over") is OUTCOMES[reason].state

    job, attempt = yard.job(job_id), yard.attempt(claim)
    assert job.state == OUTCOMES[reason].state
    assert job.finished_at is not None
    assert (job.restarts, job.version) == (0, running.version + 1)
    assert (job.reason_code, job.reason_message) == (reason, "it is over")
    assert (attempt.end_reason, attempt.detail) == (reason, "it is over")
    assert attempt.ended_at is not None
    assert yard.held() == {}
    assert [row.released_at is not None for row in yard.allocations()] == [True]
    if job.state == JobState.FAILED:
        assert job.error is not None
        assert (job.error["code"], job.error["message"]) == (reason, "it is over")
    else:
        assert job.error is None


@pytest.mark.parametrize("reason", RETRIED)
def test_an_end_that_is_retried(yard: Yard, reason: EndReason) -> None:
    job_id, worker = yard.submit(max_restarts=1), yard.worker()

    assert yard.end(yard.running(job_id, worker), reason, "a fault") is JobState.QUEUED

    job = yard.job(job_id)
    assert (job.state, job.finished_at, job.error) == (JobState.QUEUED, None, None)
    assert job.restarts == OUTCOMES[reason].counted
    assert job.reason_code == "retrying"
    assert f"({reason}): a fault" in job.reason_message
    assert yard.events(job_id)[-1].data["error"]["code"] == reason
    assert yard.held() == {}
    second = yard.running(job_id, worker)
    assert second.number == 2
    assert yard.end(second, EndReason.COMPLETED) is JobState.SUCCEEDED
    assert yard.moves(job_id) == ["queued", "starting", "running", "queued", "starting", "running", "succeeded"]


@pytest.mark.parametrize("reason", COUNTED)
@pytest.mark.parametrize("limit", [0, 2])
def test_counted_retries_end_at_max_restarts(yard: Yard, reason: EndReason, limit: int) -> None:
    job_id, worker = yard.submit(max_restarts=limit), yard.worker()
    for _ in range(limit):
        assert yard.end(yard.running(job_id, worker), reason) is JobState.QUEUED

    assert yard.end(yard.running(job_id, worker), reason, "again") is JobState.FAILED

    job = yard.job(job_id)
    assert (job.attempt, job.restarts) == (limit + 1, limit)
    assert job.error is not None
    assert (job.error["code"], job.error["message"]) == (reason, "again")
    assert job.reason_message == (f"again (after {limit} of {limit} restarts)" if limit else "again")


@pytest.mark.parametrize("reason", UNCOUNTED)
def test_uncounted_retries_end_at_the_crash_loop_cap(yard: Yard, reason: EndReason) -> None:
    job_id, worker = yard.submit(max_restarts=0), yard.worker()
    for _ in range(CRASH_LOOP_CAP - 1):
        assert yard.end(yard.running(job_id, worker), reason) is JobState.QUEUED

    assert yard.end(yard.running(job_id, worker), reason) is JobState.FAILED
    assert (yard.job(job_id).attempt, yard.job(job_id).restarts) == (CRASH_LOOP_CAP, 0)


def test_a_checkpoint_starts_the_crash_loop_count_anew(yard: Yard) -> None:
    job_id, worker = yard.submit(max_restarts=0), yard.worker()
    for number in range(1, 2 * CRASH_LOOP_CAP - 1):
        claim = yard.running(job_id, worker)
        if number == CRASH_LOOP_CAP - 1:
            yard.record(claim, seq=0, checkpoints=[checkpoint("step-5", step=5)])
        assert yard.end(claim, EndReason.WORKER_LOST) is JobState.QUEUED
    assert yard.job(job_id).attempts_without_checkpoint == CRASH_LOOP_CAP - 1
    assert yard.end(yard.running(job_id, worker), EndReason.WORKER_LOST) is JobState.FAILED


def test_retries_that_publish_nothing_wait_longer_each_time(yard: Yard) -> None:
    job_id, worker = yard.submit(), yard.worker()
    waits: list[int] = []
    for _ in range(CRASH_LOOP_CAP - 1):
        claim = yard.running(job_id, worker)
        yard.end(claim, EndReason.DEVICE_FAULT)
        not_before, ended_at = yard.job(job_id).not_before, yard.attempt(claim).ended_at
        assert not_before is not None
        assert ended_at is not None
        waits.append(round((not_before - ended_at) / _SECOND_US))
        assert (yard.read(waiting.any_ungrouped), yard.read(waiting.group_heads)) == (False, [])
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]

    past = update(Job).where(Job.id == job_id).values(not_before=now_us() - 1)
    yard.write(lambda session: session.execute(past))
    assert yard.read(waiting.any_ungrouped)
    yard.write(waiting.group_jobs)
    assert [job.id for job in yard.read(waiting.group_heads)] == [job_id]


def test_a_retry_after_a_checkpoint_starts_at_once_and_from_its_step(yard: Yard) -> None:
    job_id, worker = yard.submit(), yard.worker()
    claim = yard.running(job_id, worker)
    yard.record(claim, seq=0, checkpoints=[checkpoint("epoch-0001", step=7, epoch=1)])
    yard.end(claim, EndReason.USER_ERROR)

    assert yard.job(job_id).not_before is None
    again = yard.starting(job_id, worker)
    assert yard.attempt(again).start_step == 7
    yard.write(lambda session: attempts.mark_prepared(session, again, start_step=3))
    assert yard.attempt(again).start_step == 3


@pytest.mark.parametrize("reason", RETRIED)
def test_a_cancelled_job_is_not_retried(yard: Yard, reason: EndReason) -> None:
    job_id, worker = yard.submit(), yard.worker()
    claim = yard.running(job_id, worker)
    assert yard.cancel(job_id).state == JobState.RUNNING

    assert yard.end(claim, reason, "it failed") is JobState.CANCELLED
    assert "it failed" in yard.job(job_id).reason_message
    assert yard.job(job_id).error is None
    assert yard.held() == {}


def test_a_job_that_completes_before_it_hears_of_the_cancel_has_succeeded(yard: Yard) -> None:
    job_id = yard.submit()
    claim = yard.running(job_id, yard.worker())
    yard.cancel(job_id)
    assert yard.end(claim, EndReason.COMPLETED) is JobState.SUCCEEDED


def test_the_time_that_all_attempts_ran_is_added_up(yard: Yard) -> None:
    job_id, worker = yard.submit(), yard.worker()
    for hours in (1, 2):
        claim = yard.running(job_id, worker)
        earlier = now_us() - hours * 3600 * _SECOND_US
        moved = update(Attempt).where(Attempt.id == claim.attempt_id).values(started_at=earlier)
        yard.write(lambda session, moved=moved: session.execute(moved))
        yard.end(claim, EndReason.WORKER_LOST)
    assert yard.job(job_id).ran_us // (3600 * _SECOND_US) == 3


def test_a_hostile_report_is_stored(yard: Yard) -> None:
    job_id = yard.submit(max_restarts=0)
    claim = yard.running(job_id, yard.worker())
    report = ExitReport(
        reason=EndReason.USER_ERROR, message="a\0b\ud800", rank=1, exit_code=-11, traceback="\0" + "x" * 100_000
    )
    assert yard.write(lambda session: attempts.end(session, claim, report)) is JobState.FAILED
    error = yard.job(job_id).error
    assert error == {
        "code": "user_error",
        "message": "a\ufffdb\ufffd",
        "rank": 1,
        "exit_code": -11,
        "traceback": "\ufffd" + "x" * 100_000,
    }


def test_a_batch_is_stored_whole(yard: Yard) -> None:
    job_id = yard.submit()
    claim = yard.running(job_id, yard.worker())
    version = yard.job(job_id).version
    _record_all(yard, claim, seq=0)

    job, attempt = yard.job(job_id), yard.attempt(claim)
    assert (attempt.relay_seq, attempt.offsets, attempt.checkpoints) == (1, {"events.jsonl": 10}, 1)
    assert (job.progress, job.log_lines, job.version) == ({"step": 3}, 2, version + 1)
    last = yard.events(job_id)[-2:]
    assert [(event.type, event.attempt) for event in last] == [("message", 1), ("checkpoint", 1)]
    assert (last[0].time, last[0].data) == (77, {"level": "info", "text": "hello"})


def test_a_card_is_stored_where_it_is_news(yard: Yard) -> None:
    claim = yard.running(yard.submit(), yard.worker())
    version = yard.job(claim.job_id).version
    cards = [
        {"parameters": 62, "speed": 1e20, "name": "é"},
        {"name": "é", "speed": 1e20, "parameters": 62},
        None,
        {"parameters": 63, "versions": {"torch": None}},
    ]
    seen: list[object] = []
    for seq, card in enumerate(cards):
        yard.record(claim, seq=seq, card=card)
        job = yard.job(claim.job_id)
        seen.append((job.card, job.version - version))
    assert seen == [(cards[0], 1), (cards[0], 1), (cards[0], 1), (cards[3], 2)]
    assert all(event.type == "state" for event in yard.events(claim.job_id))


@pytest.mark.parametrize("seq", [0, 2])
def test_a_batch_with_another_number_than_the_next_stores_nothing(yard: Yard, seq: int) -> None:
    claim = yard.running(yard.submit(), yard.worker())
    _record_all(yard, claim, seq=0)
    before = yard.everything()

    with pytest.raises(StaleClaim):
        _record_all(yard, claim, seq=seq)
    assert yard.everything() == before


def test_a_batch_that_fails_in_the_middle_stores_nothing(yard: Yard) -> None:
    claim = yard.running(yard.submit(), yard.worker())
    before = yard.everything()
    with pytest.raises((OverflowError, DataError), match=r"too large|out of range"):
        yard.record(
            claim,
            seq=0,
            lines=[NewLines(0, "stdout", ["a"])],
            points=[NewPoint("train/loss", 1, 1.0, 1)],
            events=[NewEvent("message", {"level": "info", "text": "a"}, 2**70)],
        )
    assert yard.everything() == before


def test_whoever_lost_the_attempt_can_write_nothing(yard: Yard) -> None:
    job_id, worker = yard.submit(), yard.worker()
    stale = yard.running(job_id, worker)
    yard.expire(stale)
    assert yard.rescue(stale)
    after = yard.starting(job_id, worker)
    before = yard.everything()

    identity = ProcessIdentity(pid=1, start_time=2, boot_id="boot")
    writes: list[Callable[[Session], object]] = [
        lambda session: attempts.mark_prepared(session, stale, start_step=1),
        lambda session: attempts.mark_launched(session, stale, identity.to_dict()),
        lambda session: attempts.mark_running(session, stale, reason=Reason("running", "runs")),
        lambda session: attempts.record(session, stale, attempts.Batch(offsets={}), seq=1),
        lambda session: attempts.record(session, stale, attempts.Batch(offsets={}), seq=0),
        lambda session: attempts.end(session, stale, ExitReport(reason=EndReason.COMPLETED)),
    ]
    for write in writes:
        with pytest.raises(StaleClaim):
            yard.write(write)
    assert yard.everything() == before

    yard.write(lambda session: attempts.mark_launched(session, after, identity.to_dict()))
    assert yard.attempt(after).launcher == identity.to_dict()


def test_an_attempt_ends_once(yard: Yard) -> None:
    claim = yard.running(yard.submit(), yard.worker())
    yard.end(claim, EndReason.COMPLETED)
    before = yard.everything()
    with pytest.raises(StaleClaim):
        yard.end(claim, EndReason.USER_ERROR)
    assert yard.everything() == before


def test_an_attempt_is_rescued_only_when_its_lease_has_run_out(yard: Yard) -> None:
    job_id, worker = yard.submit(), yard.worker("box-a")
    claim = yard.running(job_id, worker)
    assert yard.read(attempts.expired_claims) == []
    assert not yard.rescue(claim)

    yard.expire(claim)
    assert yard.read(attempts.expired_claims) == [claim]
    assert yard.rescue(claim)

    job = yard.job(job_id)
    assert (job.state, job.restarts) == (JobState.QUEUED, 0)
    assert "the lease of worker box-a expired" in job.reason_message
    assert yard.held() == {}
    assert yard.read(attempts.expired_claims) == []
    assert not yard.rescue(claim)


def test_a_late_renewal_before_the_rescue_keeps_the_attempt(yard: Yard) -> None:
    worker = yard.worker()
    claim = yard.running(yard.submit(), worker)
    yard.expire(claim)
    assert yard.write(lambda session: attempts.renew(session, worker, [claim.attempt_id])) == {claim.attempt_id}
    assert not yard.rescue(claim)


def test_a_renewal_answers_only_open_attempts_of_the_worker(yard: Yard) -> None:
    mine, other = yard.worker("mine"), yard.worker("other")
    kept = yard.running(yard.submit(), mine, "a")
    ended = yard.running(yard.submit(), mine, "b")
    foreign = yard.running(yard.submit(), other, "a")
    yard.end(ended, EndReason.COMPLETED)
    before = yard.attempt(foreign).lease_until
    ids = [kept.attempt_id, ended.attempt_id, foreign.attempt_id, 10**6]

    assert yard.write(lambda session: attempts.renew(session, mine, ids)) == {kept.attempt_id}
    assert yard.attempt(foreign).lease_until == before
    assert yard.write(lambda session: attempts.renew(session, mine, [])) == set()
    assert yard.read(lambda session: attempts.open_claims(session, mine)) == [kept]


def _record_all(yard: Yard, claim: Claim, *, seq: int) -> None:
    yard.record(
        claim,
        seq=seq,
        offsets={"events.jsonl": 10 * (seq + 1)},
        points=[NewPoint("train/loss", 3, 0.5, 77)],
        lines=[NewLines(0, "stdout", ["one", "two"])],
        events=[NewEvent("message", {"level": "info", "text": "hello"}, 77)],
        checkpoints=[checkpoint(f"step-{seq}", step=3)],
        progress={"step": 3},
    )
