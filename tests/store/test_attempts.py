"""Attempts: claim, fence, and the effect of each end on the job."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.exc import DataError
from sqlalchemy.orm import Session

from api.present.times import microseconds
from store.attempts import append, end
from store.attempts import claim as claims
from store.attempts import lease as leases
from store.attempts import state as attempts
from store.attempts.facts import LEASE, Claim
from store.db.database import now_us
from store.output.facts import Batch, MetricPoint, NewEvent, NewLines
from store.queue import waiting
from store.tables import Attempt, Job
from tests.approved import Approved
from tests.databases import quick_on_sqlite
from tests.rows import each_row
from tests.store.fixture import StoreFixture, checkpoint, placement_on
from torchyard.contract.attempts.records import ExitReport, ProcessIdentity
from torchyard.contract.errors import StaleClaim
from torchyard.contract.states import CRASH_LOOP_CAP, OUTCOMES, EndReason, JobState, Reason

RETRIED = [reason for reason, outcome in OUTCOMES.items() if outcome.state is JobState.QUEUED]
COUNTED = [reason for reason in RETRIED if OUTCOMES[reason].counted]
UNCOUNTED = [EndReason.WORKER_LOST, EndReason.DEVICE_FAULT]
FINAL = [reason for reason in EndReason if OUTCOMES[reason].state.terminal]
_SECOND_US = 1_000_000


def test_a_claim_takes_the_job_and_its_devices(db: StoreFixture, approved: Approved) -> None:
    job_id, worker = db.submit(), db.worker("box-a")
    claim = db.starting(job_id, worker, "slot-1", "slot-0")

    job, attempt = db.job(job_id), db.attempt(claim)
    assert (job.state, job.attempt, claim.number) == (JobState.STARTING, 1, 1)
    assert job.started_at is not None
    assert [device["uuid"] for device in job.devices] == ["slot-1", "slot-0"]
    assert db.held() == {(worker, "slot-0"): job_id, (worker, "slot-1"): job_id}
    assert attempt.lease_until - attempt.started_at == pytest.approx(LEASE / timedelta(microseconds=1), abs=10_000)
    assert db.events(job_id)[-1].data["reason"] == {"code": "starting", "message": approved("message")}


def test_a_claim_writes_which_node_of_the_job_has_the_devices(db: StoreFixture) -> None:
    job_id, placement = db.submit(), replace(placement_on(db.worker(), "a", "b"), node_rank=3)
    assert db.write(lambda session: claims.claim(session, job_id, placement)) is not None
    assert [(row.device, row.node_rank) for row in db.allocations()] == [("a", 3), ("b", 3)]


def test_an_attempt_keeps_when_it_became_running(db: StoreFixture) -> None:
    claim = db.starting(db.submit(), db.worker())
    assert db.attempt(claim).running_at is None
    db.write(lambda session: attempts.mark_running(session, claim, reason=Reason("running", "runs")))
    running_at = db.attempt(claim).running_at
    assert running_at is not None
    assert db.attempt(claim).started_at <= running_at <= microseconds(db.events(claim.job_id)[-1].time)
    db.end(claim, EndReason.COMPLETED)
    assert db.attempt(claim).running_at == running_at


@quick_on_sqlite
def test_a_claim_without_one_of_its_devices_takes_none(db: StoreFixture) -> None:
    worker, first, second = db.worker(), db.submit(), db.submit()
    db.starting(first, worker, "slot-1")
    before = db.everything()

    assert db.claim(second, worker, "slot-0", "slot-1") is None
    assert db.everything() == before
    assert db.claim(second, worker, "slot-0") is not None


def test_devices_of_the_same_name_on_two_workers_are_two_devices(db: StoreFixture) -> None:
    one, two = db.worker("one"), db.worker("two")
    assert db.claim(db.submit(), one, "slot-0") is not None
    assert db.claim(db.submit(), two, "slot-0") is not None


@pytest.mark.parametrize("ended", [False, True])
def test_only_a_queued_job_can_be_claimed(db: StoreFixture, ended: bool) -> None:
    job_id, worker = db.submit(), db.worker()
    claim = db.running(job_id, worker)
    if ended:
        db.end(claim, EndReason.COMPLETED)
    assert db.claim(job_id, worker, "slot-1") is None
    assert db.claim("job_" + "0" * 32, worker, "slot-1") is None


@pytest.mark.parametrize("reason", FINAL)
def test_ends_without_a_retry_are_final(db: StoreFixture, reason: EndReason) -> None:
    job_id, worker = db.submit(max_restarts=5), db.worker()
    claim = db.running(job_id, worker)
    running = db.job(job_id)

    assert db.end(claim, reason, "it is over") is OUTCOMES[reason].state

    job, attempt = db.job(job_id), db.attempt(claim)
    assert job.state == OUTCOMES[reason].state
    assert job.finished_at is not None
    assert (job.restarts, job.version) == (0, running.version + 1)
    assert (job.reason_code, job.reason_message) == (reason, "it is over")
    assert (attempt.end_reason, attempt.detail) == (reason, "it is over")
    assert attempt.ended_at is not None
    assert db.held() == {}
    assert [row.released_at is not None for row in db.allocations()] == [True]
    if job.state == JobState.FAILED:
        assert job.error is not None
        assert (job.error["code"], job.error["message"]) == (reason, "it is over")
    else:
        assert job.error is None


@pytest.mark.parametrize("reason", RETRIED)
def test_ends_with_a_retry_requeue_the_job(db: StoreFixture, reason: EndReason, approved: Approved) -> None:
    job_id, worker = db.submit(max_restarts=1), db.worker()

    assert db.end(db.running(job_id, worker), reason, "a fault") is JobState.QUEUED

    job = db.job(job_id)
    assert (job.state, job.finished_at, job.error) == (JobState.QUEUED, None, None)
    assert job.restarts == OUTCOMES[reason].counted
    assert job.reason_code == "retrying"
    assert job.reason_message == approved.of_row("reason_message")
    assert db.events(job_id)[-1].data["error"]["code"] == reason
    assert db.held() == {}
    second = db.running(job_id, worker)
    assert second.number == 2
    assert db.end(second, EndReason.COMPLETED) is JobState.SUCCEEDED
    assert db.moves(job_id) == ["queued", "starting", "running", "queued", "starting", "running", "succeeded"]


@pytest.mark.parametrize("reason", COUNTED)
@pytest.mark.parametrize("limit", [0, 2])
def test_counted_retries_stop_at_max_restarts(db: StoreFixture, reason: EndReason, limit: int) -> None:
    job_id, worker = db.submit(max_restarts=limit), db.worker()
    for _ in range(limit):
        assert db.end(db.running(job_id, worker), reason) is JobState.QUEUED

    assert db.end(db.running(job_id, worker), reason, "again") is JobState.FAILED

    job = db.job(job_id)
    assert (job.attempt, job.restarts) == (limit + 1, limit)
    assert job.error is not None
    assert (job.error["code"], job.error["message"]) == (reason, "again")
    assert job.reason_message == (f"again (after {limit} of {limit} restarts)" if limit else "again")


_PROGRESS: dict[str, dict[str, Any]] = {
    "none": {"progress": {"step": 0}},
    "a step": {"progress": {"step": 1}},
    "a metric": {"points": [MetricPoint("train/loss", 0, 1.0, 1)]},
    "a checkpoint": {"checkpoints": [checkpoint("step-0", step=0)]},
}


@pytest.mark.parametrize("progress", _PROGRESS)
def test_an_error_of_the_program_before_its_first_progress_is_not_retried(
    db: StoreFixture, progress: str, approved: Approved
) -> None:
    job_id, worker = db.submit(max_restarts=2), db.worker()
    claim = db.running(job_id, worker)
    db.record(claim, seq=0, lines=[NewLines(0, "stdout", ["begins"])], **_PROGRESS[progress])
    wanted = JobState.FAILED if progress == "none" else JobState.QUEUED
    assert db.end(claim, EndReason.USER_ERROR, "ValueError: a typing error", stepped=False) is wanted
    assert db.job(job_id).reason_message == approved.of_row("reason_message")
    if progress != "none":  # made by an earlier attempt
        assert db.end(db.running(job_id, worker), EndReason.USER_ERROR, stepped=False) is JobState.QUEUED


def test_what_is_no_error_of_the_program_is_retried_before_its_first_progress(db: StoreFixture) -> None:
    job_id, worker = db.submit(max_restarts=2), db.worker()
    for reason in [each for each in RETRIED if each is not EndReason.USER_ERROR]:
        db.write(lambda session: session.execute(update(Job).values(restarts=0)))
        assert db.end(db.running(job_id, worker), reason, "lost") is JobState.QUEUED, reason
    unexplained = ExitReport(reason=EndReason.USER_ERROR, message="the launcher exited with code 1")
    claim = db.running(job_id, worker)
    assert db.write(lambda session: end.end(session, claim, unexplained)) is JobState.QUEUED
    lost = "DistStoreError: Timed out after 60 seconds waiting for clients. 1/2 clients joined."
    assert db.end(db.running(job_id, worker), EndReason.USER_ERROR, lost, stepped=False) is JobState.QUEUED


@pytest.mark.parametrize(
    ("spec", "minutes", "wanted"),
    [
        ({}, 4, JobState.FAILED),
        ({}, 6, JobState.QUEUED),
        ({"trainer": "image-classification", "config": {"data": {"source": "digits"}}}, 6, JobState.FAILED),
    ],
)
@quick_on_sqlite
def test_a_script_that_reports_nothing_is_under_way_after_five_minutes(
    db: StoreFixture, spec: dict[str, Any], minutes: int, wanted: JobState
) -> None:
    claim = db.running(db.submit(**spec), db.worker())
    began = update(Attempt).values(running_at=Attempt.running_at - minutes * 60 * _SECOND_US)
    db.write(lambda session: session.execute(began))
    assert db.end(claim, EndReason.USER_ERROR, stepped=False) is wanted


@pytest.mark.parametrize("reason", UNCOUNTED)
@quick_on_sqlite
def test_uncounted_retries_stop_at_the_crash_loop_cap(db: StoreFixture, reason: EndReason) -> None:
    job_id, worker = db.submit(max_restarts=0), db.worker()
    db.crash(job_id, CRASH_LOOP_CAP - 2)
    assert db.end(db.running(job_id, worker), reason) is JobState.QUEUED
    assert db.end(db.running(job_id, worker), reason) is JobState.FAILED
    assert (db.job(job_id).attempt, db.job(job_id).restarts) == (2, 0)


@quick_on_sqlite
def test_a_checkpoint_resets_the_crash_loop_count(db: StoreFixture) -> None:
    job_id, worker = db.submit(max_restarts=0), db.worker()
    db.crash(job_id, CRASH_LOOP_CAP - 1)
    claim = db.running(job_id, worker)
    db.record(claim, seq=0, checkpoints=[checkpoint("step-5", step=5)])
    assert db.end(claim, EndReason.WORKER_LOST) is JobState.QUEUED
    assert db.job(job_id).attempts_without_checkpoint == 0
    assert db.end(db.running(job_id, worker), EndReason.WORKER_LOST) is JobState.QUEUED
    assert db.job(job_id).attempts_without_checkpoint == 1


@quick_on_sqlite
def test_the_backoff_grows_without_checkpoints(db: StoreFixture) -> None:
    job_id, worker = db.submit(), db.worker()
    waits: list[int] = []
    for _ in range(CRASH_LOOP_CAP - 1):
        claim = db.running(job_id, worker)
        db.end(claim, EndReason.DEVICE_FAULT)
        not_before, ended_at = db.job(job_id).not_before, db.attempt(claim).ended_at
        assert not_before is not None
        assert ended_at is not None
        waits.append(round((not_before - ended_at) / _SECOND_US))
        assert (db.read(waiting.any_ungrouped), db.heads()) == (False, [])
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]

    past = update(Job).where(Job.id == job_id).values(not_before=now_us() - 1)
    db.write(lambda session: session.execute(past))
    assert db.read(waiting.any_ungrouped)
    db.write(waiting.group_jobs)
    assert db.heads() == [job_id]


def test_a_retry_after_a_checkpoint_starts_at_once_and_from_its_step(db: StoreFixture) -> None:
    job_id, worker = db.submit(), db.worker()
    claim = db.running(job_id, worker)
    db.record(claim, seq=0, checkpoints=[checkpoint("epoch-0001", step=7, epoch=1)])
    db.end(claim, EndReason.USER_ERROR)

    assert db.job(job_id).not_before is None
    again = db.starting(job_id, worker)
    assert db.attempt(again).start_step == 7
    db.write(lambda session: attempts.mark_prepared(session, again, start_step=3))
    assert db.attempt(again).start_step == 3


@each_row("reason", RETRIED)
def test_a_cancelled_job_is_not_retried(db: StoreFixture, reason: EndReason) -> None:
    job_id, worker = db.submit(), db.worker()
    claim = db.running(job_id, worker)
    assert db.cancel(job_id).state == JobState.RUNNING

    assert db.end(claim, reason, "it failed") is JobState.CANCELLED
    assert "it failed" in db.job(job_id).reason_message
    assert db.job(job_id).error is None
    assert db.held() == {}


def test_a_job_that_completes_before_it_learns_of_a_cancel_has_succeeded(db: StoreFixture) -> None:
    job_id = db.submit()
    claim = db.running(job_id, db.worker())
    db.cancel(job_id)
    assert db.end(claim, EndReason.COMPLETED) is JobState.SUCCEEDED


def test_the_run_times_of_all_attempts_are_added(db: StoreFixture) -> None:
    job_id, worker = db.submit(), db.worker()
    for hours in (1, 2):
        claim = db.running(job_id, worker)
        earlier = now_us() - hours * 3600 * _SECOND_US
        moved = update(Attempt).where(Attempt.id == claim.attempt_id).values(started_at=earlier)
        db.write(lambda session, moved=moved: session.execute(moved))
        db.end(claim, EndReason.WORKER_LOST)
    assert db.job(job_id).ran_us // (3600 * _SECOND_US) == 3


def test_a_hostile_report_is_stored(db: StoreFixture) -> None:
    job_id = db.submit(max_restarts=0)
    claim = db.running(job_id, db.worker())
    report = ExitReport(
        reason=EndReason.USER_ERROR, message="a\0b\ud800", rank=1, exit_code=-11, traceback="\0" + "x" * 10_000
    )
    assert db.write(lambda session: end.end(session, claim, report)) is JobState.FAILED
    error = db.job(job_id).error
    assert error == {
        "code": "user_error",
        "message": "a\ufffdb\ufffd",
        "rank": 1,
        "exit_code": -11,
        "traceback": "\ufffd" + "x" * 10_000,
    }


def test_a_batch_is_stored_whole(db: StoreFixture) -> None:
    job_id = db.submit()
    claim = db.running(job_id, db.worker())
    version = db.job(job_id).version
    _record_all(db, claim, seq=0)

    job, attempt = db.job(job_id), db.attempt(claim)
    assert (attempt.relay_seq, attempt.offsets, attempt.checkpoints) == (1, {"events.jsonl": 10}, 1)
    assert (job.progress, job.log_lines, job.version) == ({"step": 3}, 2, version + 1)
    last = db.events(job_id)[-2:]
    assert [(event.type, event.attempt) for event in last] == [("message", 1), ("checkpoint", 1)]
    assert last[0].data == {"level": "info", "text": "hello"}


@quick_on_sqlite
def test_a_card_is_stored_only_if_it_changes(db: StoreFixture) -> None:
    claim = db.running(db.submit(), db.worker())
    version = db.job(claim.job_id).version
    cards = [
        {"parameters": 62, "speed": 1e20, "name": "é"},
        {"name": "é", "speed": 1e20, "parameters": 62},
        None,
        {"parameters": 63, "versions": {"torch": None}},
    ]
    seen: list[object] = []
    for seq, card in enumerate(cards):
        db.record(claim, seq=seq, card=card)
        job = db.job(claim.job_id)
        seen.append((job.card, job.version - version))
    assert seen == [(cards[0], 1), (cards[0], 1), (cards[0], 1), (cards[3], 2)]
    assert all(event.type == "state" for event in db.events(claim.job_id))


@pytest.mark.parametrize("seq", [0, 2])
def test_a_batch_with_a_wrong_number_stores_nothing(db: StoreFixture, seq: int) -> None:
    claim = db.running(db.submit(), db.worker())
    _record_all(db, claim, seq=0)
    before = db.everything()

    with pytest.raises(StaleClaim):
        _record_all(db, claim, seq=seq)
    assert db.everything() == before


@quick_on_sqlite
def test_a_batch_that_fails_in_the_middle_stores_nothing(db: StoreFixture) -> None:
    claim = db.running(db.submit(), db.worker())
    before = db.everything()
    with pytest.raises((OverflowError, DataError), match=r"too large|out of range"):
        db.record(
            claim,
            seq=0,
            lines=[NewLines(0, "stdout", ["a"])],
            points=[MetricPoint("train/loss", 1, 1.0, 1)],
            events=[NewEvent("message", {"level": "info", "text": "a"}, 2**70)],
        )
    assert db.everything() == before


def test_a_worker_that_lost_its_attempt_cannot_write(db: StoreFixture) -> None:
    job_id, worker = db.submit(), db.worker()
    stale = db.running(job_id, worker)
    db.expire(stale)
    assert db.rescue(stale)
    after = db.starting(job_id, worker)
    before = db.everything()

    identity = ProcessIdentity(pid=1, start_time=2, boot_id="boot")
    writes: list[Callable[[Session], object]] = [
        lambda session: attempts.mark_prepared(session, stale, start_step=1),
        lambda session: attempts.mark_launched(session, stale, identity.to_dict()),
        lambda session: attempts.mark_running(session, stale, reason=Reason("running", "runs")),
        lambda session: append.record(session, stale, Batch(offsets={}), seq=1),
        lambda session: append.record(session, stale, Batch(offsets={}), seq=0),
        lambda session: end.end(session, stale, ExitReport(reason=EndReason.COMPLETED)),
    ]
    for write in writes:
        with pytest.raises(StaleClaim):
            db.write(write)
    assert db.everything() == before

    db.write(lambda session: attempts.mark_launched(session, after, identity.to_dict()))
    assert db.attempt(after).launcher == identity.to_dict()


@quick_on_sqlite
def test_an_attempt_ends_once(db: StoreFixture) -> None:
    claim = db.running(db.submit(), db.worker())
    db.end(claim, EndReason.COMPLETED)
    before = db.everything()
    with pytest.raises(StaleClaim):
        db.end(claim, EndReason.USER_ERROR)
    assert db.everything() == before


def test_an_attempt_is_rescued_only_after_its_lease_has_expired(db: StoreFixture, approved: Approved) -> None:
    job_id, worker = db.submit(), db.worker("box-a")
    claim = db.running(job_id, worker)
    assert db.read(leases.list_expired) == []
    assert not db.rescue(claim)

    db.expire(claim)
    assert db.read(leases.list_expired) == [claim]
    assert db.rescue(claim)

    job = db.job(job_id)
    assert (job.state, job.restarts) == (JobState.QUEUED, 0)
    assert job.reason_message == approved("reason_message")
    assert db.held() == {}
    assert db.read(leases.list_expired) == []
    assert not db.rescue(claim)


def test_a_late_renewal_before_the_rescue_keeps_the_attempt(db: StoreFixture) -> None:
    worker = db.worker()
    claim = db.running(db.submit(), worker)
    db.expire(claim)
    assert db.write(lambda session: leases.renew(session, worker, [claim.attempt_id])) == {claim.attempt_id}
    assert not db.rescue(claim)


def test_a_renewal_returns_only_open_attempts_of_the_worker(db: StoreFixture) -> None:
    mine, other = db.worker("mine"), db.worker("other")
    kept = db.running(db.submit(), mine, "a")
    ended = db.running(db.submit(), mine, "b")
    foreign = db.running(db.submit(), other, "a")
    db.end(ended, EndReason.COMPLETED)
    before = db.attempt(foreign).lease_until
    ids = [kept.attempt_id, ended.attempt_id, foreign.attempt_id, 10**6]

    assert db.write(lambda session: leases.renew(session, mine, ids)) == {kept.attempt_id}
    assert db.attempt(foreign).lease_until == before
    assert db.write(lambda session: leases.renew(session, mine, [])) == set()
    assert db.read(lambda session: leases.list_open(session, mine)) == [kept]


def _record_all(db: StoreFixture, claim: Claim, *, seq: int) -> None:
    db.record(
        claim,
        seq=seq,
        offsets={"events.jsonl": 10 * (seq + 1)},
        points=[MetricPoint("train/loss", 3, 0.5, 77)],
        lines=[NewLines(0, "stdout", ["one", "two"])],
        events=[NewEvent("message", {"level": "info", "text": "hello"}, 77)],
        checkpoints=[checkpoint(f"step-{seq}", step=3)],
        progress={"step": 3},
    )


def test_the_times_of_events_never_run_backwards_nor_ahead(db: StoreFixture) -> None:
    job_id = db.submit()
    claim = db.running(job_id, db.worker())
    now = db.read(lambda session: session.execute(select(now_us())).scalar_one())
    hour = 3600 * _SECOND_US
    told = [now + hour, now - hour, 0, 1]  # by a rank whose clock is an hour ahead, and by others
    for number, time in enumerate(told):
        event = NewEvent("message", {"level": "info", "text": f"{number}"}, time)
        db.record(claim, seq=number, events=[event])
    db.end(claim, EndReason.COMPLETED)

    times = [microseconds(event.time) for event in db.events(job_id)]
    assert [event.data.get("text") for event in db.events(job_id)][-5:] == ["0", "1", "2", "3", None]
    assert times == sorted(times)
    assert times[-1] <= db.read(lambda session: session.execute(select(now_us())).scalar_one())
