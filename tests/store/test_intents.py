"""Requests to a job, and their effect at the end of its attempt."""

from datetime import timedelta
from typing import Any

import pytest

from store.attempts import history as attempt_facts
from store.jobs import deletion, edits, resume, stop
from store.jobs.facts import AT_ONCE, StoppedFor
from store.jobs.stop import requested_stop
from store.team.callers import Caller
from tests.approved import Approved
from tests.databases import quick_on_sqlite
from tests.store.fixture import StoreFixture, checkpoint
from torchyard.contract.errors import Conflict, NotFound
from torchyard.contract.jobs.requests import JobPatch
from torchyard.contract.states import CRASH_LOOP_CAP, EndReason, JobState
from torchyard.contract.team.roles import Role


def test_a_queued_job_is_paused_immediately_and_resumed_into_the_queue(db: StoreFixture) -> None:
    job_id = db.submit()
    assert db.pause(job_id).state == JobState.PAUSED
    assert db.claim(job_id, db.worker()) is None
    assert db.pause(job_id).version == db.job(job_id).version
    job = db.resume(job_id)
    assert (job.state, job.pause_requested_at) == (JobState.QUEUED, None)
    assert db.resume(job_id).version == job.version
    assert db.moves(job_id) == ["queued", "paused", "queued"]


@quick_on_sqlite
def test_a_running_job_is_requested_to_pause_and_paused_by_the_end_of_its_attempt(db: StoreFixture) -> None:
    worker = db.worker()
    claim = db.running(db.submit(), worker)
    before = db.job(claim.job_id).version
    job = db.pause(claim.job_id)
    assert (job.state, job.reason_code, requested_stop(job)) == (JobState.RUNNING, "stopping", EndReason.PAUSED)
    assert job.version == before + 1
    assert db.pause(claim.job_id).version == job.version
    assert db.end(claim, EndReason.PAUSED) is JobState.PAUSED
    job = db.job(claim.job_id)
    assert (job.finished_at, job.attempts_without_checkpoint, job.restarts, job.not_before) == (None, 0, 0, None)
    assert db.held() == {}
    db.resume(claim.job_id)
    assert db.starting(claim.job_id, worker).number == 2


def test_a_withdrawn_pause_requeues_the_job(db: StoreFixture, approved: Approved) -> None:
    claim = db.running(db.submit(), db.worker())
    db.pause(claim.job_id)
    resumed = db.resume(claim.job_id)
    assert requested_stop(resumed) is None
    assert (resumed.state, resumed.reason_code, resumed.reason_message) == (
        "running",
        "running",
        approved("reason_message"),
    )
    assert db.end(claim, EndReason.PAUSED) is JobState.QUEUED
    job = db.job(claim.job_id)
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
def test_an_attempt_that_ends_before_its_pause_has_its_own_outcome(
    db: StoreFixture, reason: EndReason, ends: JobState
) -> None:
    claim = db.running(db.submit(max_restarts=1), db.worker())
    db.pause(claim.job_id)
    assert db.end(claim, reason) is ends
    assert db.job(claim.job_id).restarts == (reason is EndReason.USER_ERROR)


def test_a_failure_without_restarts_left_fails_a_pausing_job(db: StoreFixture) -> None:
    claim = db.running(db.submit(max_restarts=0), db.worker())
    db.pause(claim.job_id)
    assert db.end(claim, EndReason.USER_ERROR) is JobState.FAILED


@pytest.mark.parametrize("reason", [EndReason.PAUSED, EndReason.PREEMPTED, EndReason.WORKER_LOST])
def test_a_cancel_overrides_a_pause_and_cannot_be_withdrawn(db: StoreFixture, reason: EndReason) -> None:
    claim = db.running(db.submit(), db.worker())
    db.pause(claim.job_id)
    assert requested_stop(db.cancel(claim.job_id)) is EndReason.CANCELLED
    for ask in (db.pause, db.resume):
        with pytest.raises(Conflict, match="is being cancelled"):
            ask(claim.job_id)
    assert db.end(claim, reason) is JobState.CANCELLED
    for ask in (db.pause, db.resume):
        with pytest.raises(Conflict, match="has already cancelled"):
            ask(claim.job_id)


def test_a_paused_job_is_cancelled_immediately(db: StoreFixture) -> None:
    job_id = db.submit()
    db.pause(job_id)
    assert db.cancel(job_id).state == JobState.CANCELLED
    assert db.moves(job_id) == ["queued", "paused", "cancelled"]


def test_the_grace_of_a_cancel_only_becomes_shorter(db: StoreFixture, approved: Approved) -> None:
    claim = db.running(db.submit(), db.worker())
    seen = [
        (db.cancel(claim.job_id, grace=grace)) for grace in (None, timedelta(seconds=30), timedelta(minutes=1), None)
    ]
    assert [stop.cancel_grace(job) for job in seen] == [None, *[timedelta(seconds=30)] * 3]
    assert [job.version - seen[0].version for job in seen] == [0, 1, 1, 1]
    forced = db.cancel(claim.job_id, grace=AT_ONCE)
    assert (forced.reason_code, forced.cancel_requested_at) == ("stopping", seen[0].cancel_requested_at)
    assert db.cancel(claim.job_id, grace=AT_ONCE).version == db.cancel(claim.job_id).version == forced.version
    messages = [event.data["text"] for event in db.events(claim.job_id) if event.type == "message"]
    assert "\n".join(messages) == approved("messages")
    assert db.end(claim, EndReason.CANCELLED) is JobState.CANCELLED


@pytest.mark.parametrize("paused", [False, True])
def test_a_forced_cancel_of_a_waiting_job_is_an_ordinary_one(db: StoreFixture, paused: bool) -> None:
    job_id = db.submit()
    if paused:
        db.pause(job_id)
    job = db.cancel(job_id, grace=AT_ONCE)
    assert (job.state, job.cancel_grace_s) == (JobState.CANCELLED, None)
    assert db.cancel(job_id, grace=AT_ONCE).version == job.version


def test_another_users_job_is_not_cancelled_by_force(db: StoreFixture) -> None:
    job_id = db.submit(owner="ada")
    with pytest.raises(NotFound):
        db.write(lambda session: stop.request_cancel(session, job_id, Caller("eve", Role.MEMBER), grace=AT_ONCE))
    assert db.job(job_id).state == JobState.QUEUED


def test_another_users_job_is_neither_paused_nor_resumed(db: StoreFixture) -> None:
    job_id = db.submit(owner="ada")
    for ask in (stop.request_pause, resume.resume):
        with pytest.raises(NotFound):
            db.write(lambda session, ask=ask: ask(session, job_id, Caller("eve", Role.MEMBER)))


def test_a_pause_of_a_starting_job_can_be_withdrawn(db: StoreFixture) -> None:
    claim = db.starting(db.submit(), db.worker())
    db.pause(claim.job_id)
    assert db.resume(claim.job_id).reason_code == "starting"


@quick_on_sqlite
def test_pauses_do_not_count_towards_the_crash_loop_cap(db: StoreFixture) -> None:
    job_id = db.submit()
    db.crash(job_id, CRASH_LOOP_CAP - 1)
    claim = db.running(job_id, db.worker())
    db.pause(job_id)
    assert db.end(claim, EndReason.PAUSED) is JobState.PAUSED
    assert db.job(job_id).attempts_without_checkpoint == CRASH_LOOP_CAP - 1
    assert db.resume(job_id).not_before is None


@quick_on_sqlite
def test_preemptions_do_not_count_towards_the_crash_loop_cap(db: StoreFixture) -> None:
    job_id, worker = db.submit(max_restarts=0), db.worker()
    db.crash(job_id, CRASH_LOOP_CAP - 1)
    for _ in range(2):
        assert db.end(db.running(job_id, worker), EndReason.PREEMPTED) is JobState.QUEUED
        assert (db.job(job_id).attempts_without_checkpoint, db.job(job_id).not_before) == (CRASH_LOOP_CAP - 1, None)
    assert db.end(db.running(job_id, worker), EndReason.WORKER_LOST) is JobState.FAILED, "as if it never had"


def test_a_delayed_retry_says_for_how_long(db: StoreFixture) -> None:
    claim = db.running(db.submit(), db.worker())
    db.end(claim, EndReason.WORKER_LOST, "the host was restarted")
    job = db.job(claim.job_id)
    assert job.not_before is not None
    expected = "attempt 1 ended: the host was restarted; the next one starts in 1 s at the earliest"
    assert job.reason_message == expected


@quick_on_sqlite
def test_either_all_victims_are_preempted_or_none(db: StoreFixture, approved: Approved) -> None:
    worker = db.worker()
    one = db.running(db.submit(preemptible=True, priority=1), worker, "a")
    two = db.running(db.submit(preemptible=True, priority=2), worker, "b")
    firm = db.running(db.submit(priority=1), worker, "c")
    high, lower = db.submit(priority=5), db.submit(priority=1)
    assert not db.preempt(one.job_id, firm.job_id, preemptor=high), "a job that may not be preempted"
    assert not db.preempt(one.job_id, two.job_id, preemptor=lower), "one whose priority is higher"
    assert [requested_stop(db.job(claim.job_id)) for claim in (one, two, firm)] == [None] * 3
    assert db.preempt(one.job_id, two.job_id, preemptor=high)
    assert not db.preempt(one.job_id, two.job_id, preemptor=high), "room for it is being made already"
    assert requested_stop(db.job(one.job_id)) is EndReason.PREEMPTED
    asked = db.job(one.job_id).reason_message
    assert asked == approved("asked")
    assert db.events(one.job_id)[-1].data == {"level": "info", "text": asked}

    db.record(one, seq=0, checkpoints=[checkpoint("c", step=1)])
    assert db.end(one, EndReason.PREEMPTED, "the worker was asked to stop") is JobState.QUEUED
    job = db.job(one.job_id)
    assert job.reason_message == approved("reason_message")
    assert db.events(one.job_id)[-1].data["error"]["message"] == approved("message")
    assert (job.preempt_requested_at, job.preempted_for, job.restarts, job.not_before) == (None, None, 0, None)


@quick_on_sqlite
def test_a_preempted_job_names_its_preemptor_if_known(db: StoreFixture, approved: Approved) -> None:
    worker = db.worker()
    low = db.running(db.submit(preemptible=True), worker, "a")
    crashed = db.running(db.submit(preemptible=True), worker, "b")
    drained = db.running(db.submit(), worker, "c")
    high = db.submit(priority=5)
    assert db.preempt(low.job_id, crashed.job_id, preemptor=high)
    db.cancel(high)
    db.write(lambda session: deletion.delete_job(session, high))
    db.end(low, EndReason.PREEMPTED)
    db.end(crashed, EndReason.KILLED, "rank 0 was killed by SIGKILL")
    db.end(drained, EndReason.PREEMPTED, "the worker was asked to stop")
    reasons = [db.job(claim.job_id).reason_message.partition(" ended: ")[2] for claim in (low, crashed, drained)]
    assert reasons[0] == approved("reasons")
    assert reasons[1] == approved("rank was killed")
    assert reasons[2] == "the worker was asked to stop"


def test_nothing_is_preempted_for_a_job_that_is_not_queued(db: StoreFixture) -> None:
    worker = db.worker()
    low = db.running(db.submit(preemptible=True), worker, "a")
    high = db.submit(priority=5)
    db.running(high, worker, "b")
    assert not db.preempt(low.job_id, preemptor=high)
    assert not db.preempt(low.job_id, preemptor="job_gone")


def test_a_draining_worker_claims_nothing(db: StoreFixture) -> None:
    worker, job_id = db.worker(), db.submit()
    db.drain(worker)
    assert db.claim(job_id, worker) is None
    assert db.moves(job_id) == ["queued"]
    db.drain(worker, drain=False)
    assert db.starting(job_id, worker).number == 1


def test_events_say_who_asked_for_a_pause_a_resume_and_a_cancel(db: StoreFixture, approved: Approved) -> None:
    eve = Caller("eve", Role.ADMIN)
    waiting, claim = db.submit(), db.running(db.submit(), db.worker())
    for job_id in (waiting, claim.job_id):
        for ask in (stop.request_pause, resume.resume, stop.request_cancel):
            db.write(lambda session, ask=ask, job_id=job_id: ask(session, job_id, eve))
    assert [event.data.get("by") for event in db.events(waiting)] == [None, "eve", "eve", "eve"]
    said = [event.data for event in db.events(claim.job_id) if event.type == "message"]
    assert [(data["text"].split(":")[0], data["by"]) for data in said] == [
        ("pause requested", "eve"),
        (approved("text"), "eve"),
        ("cancel requested", "eve"),
    ]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"trainer": "image-classification", "config": {}}, "saves a checkpoint, then releases"),
        ({"trainer": "script", "config": {"code": "file:///code"}}, "may save a checkpoint, then releases"),
    ],
)
def test_a_pause_says_that_a_checkpoint_is_saved_only_of_what_saves_one(
    db: StoreFixture, spec: dict[str, Any], says: str
) -> None:
    claim = db.running(db.submit(**spec), db.worker())
    db.pause(claim.job_id)
    assert db.job(claim.job_id).reason_message == f"pause requested: {says} its devices"


def test_the_service_names_nobody_for_what_it_does_itself(db: StoreFixture) -> None:
    claim = db.running(db.submit(), db.worker())
    db.pause(claim.job_id)
    assert ["by" in event.data for event in db.events(claim.job_id) if event.type == "message"] == [False]


@pytest.mark.parametrize(
    ("name", "visibility", "named"), [("eve", "private", True), ("ada", "private", False), ("ada", "team", True)]
)
def test_an_attempt_names_the_job_that_took_its_place_to_who_may_read_that(
    db: StoreFixture, name: str, visibility: str, named: bool
) -> None:
    victim = db.running(db.submit(preemptible=True, visibility="team"), db.worker())
    high = db.submit(owner="eve", name="high", priority=5)
    db.write(lambda session: edits.change(session, high, JobPatch.model_validate({"visibility": visibility})))
    assert db.preempt(victim.job_id, preemptor=high)
    db.end(victim, EndReason.PREEMPTED)
    caller = Caller(name, Role.MEMBER)
    (attempt,) = db.read(
        lambda session: attempt_facts.list_attempts(session, victim.job_id, caller=caller, after=0, limit=9)
    ).items
    assert attempt.stopped_for == StoppedFor("eve", *((high, "high") if named else (None, None)))
