"""Every write is announced to Redis after its commit."""

from collections.abc import Generator
from contextlib import closing, suppress
from pathlib import Path
from typing import Literal, TypeAlias

import pytest

from store.announcement import Announcement, announcement_of
from store.attempts import append, end
from store.attempts import claim as claims
from store.attempts.facts import Begun, Claim
from store.db.database import Database
from store.jobs import requests, stop
from store.jobs import submit as submission
from store.jobs.submission import Submission
from store.output.facts import Batch
from store.queue.announcing import Queue, WakeupListener
from store.store import Store
from store.team.callers import SERVICE
from store.worker.verbs import WorkerStore
from tests import line, sessions
from tests.sessions import write
from tests.store.fixture import StoreFixture, a_service, placement_on, store_on
from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.errors import Conflict
from torchyard.contract.jobs.requests import parse_patch
from torchyard.contract.spec.spec import parse_spec
from torchyard.contract.states import EndReason, JobState, Reason

SPEC = parse_spec({"trainer": "script", "config": {"code": "file:///code"}})

Stop: TypeAlias = Literal["cancel", "pause", "resume"]


@pytest.fixture
def store(database: Database, queue: Queue) -> Store:
    return store_on(database, queue=queue)


@pytest.fixture
def listener(queue: Queue) -> Generator[WakeupListener]:
    with closing(queue.listener()) as listener:
        while not listener.wait(0.1):  # until it listens
            queue.announce(Announcement(wakes_workers=True))
        while listener.wait(0.2):
            pass
        yield listener


def ask(store: Store, what: Stop, job_id: str) -> str:
    return write(store, requests.ask, what, job_id, caller=SERVICE).id


def claimed(store: Store, db: StoreFixture, job_id: str) -> Claim:
    worker = db.worker()
    claim = write(store, claims.claim, job_id, placement_on(worker, "slot-0"))
    assert claim is not None
    return claim


def running(store: Store, db: StoreFixture) -> Claim:
    claim = claimed(store, db, db.submit())
    WorkerStore(store, claim.worker_id).change(claim, Begun(running=Reason("running", "runs")))
    return claim


def rang(listener: WakeupListener) -> bool:
    return listener.wait(0.2)


def test_a_submitted_job_is_in_the_queue_and_the_workers_are_woken(store: Store, listener: WakeupListener) -> None:
    made = submission.submit_alone(store, Submission(SPEC, SERVICE, "private"))
    assert (line.waiting(store.queue), rang(listener)) == ([made.job.id], True)


def test_a_job_that_changes_its_state_enters_and_leaves_the_queue(store: Store, db: StoreFixture) -> None:
    job_id = db.submit()
    steps: tuple[tuple[Stop, bool], ...] = (("pause", False), ("resume", True), ("cancel", False))
    for what, waits in steps:
        ask(store, what, job_id)
        assert (job_id in line.waiting(store.queue)) is waits, what


def test_a_new_priority_moves_the_job_in_the_queue(store: Store, db: StoreFixture) -> None:
    first, second = db.submit(), db.submit()
    for job_id, priority in ((first, 1), (second, 2)):
        write(store, requests.change, job_id, parse_patch({"priority": priority}), caller=SERVICE)
    assert line.waiting(store.queue) == [second, first]


def test_a_claim_dequeues_the_job_even_if_it_is_too_late(store: Store, db: StoreFixture) -> None:
    job_id = db.submit()
    store.sweep_line()
    claimed(store, db, job_id)
    assert line.waiting(store.queue) == []
    store.queue.announce(line.queued(job_id))
    late = db.worker("late")
    assert write(store, claims.claim, job_id, placement_on(late)) is None
    assert line.waiting(store.queue) == []


@pytest.mark.parametrize("how", ["end", "rescue"])
def test_an_attempt_with_a_retry_requeues_its_job_and_wakes_the_workers(
    store: Store, db: StoreFixture, listener: WakeupListener, how: str
) -> None:
    claim = running(store, db)
    rang(listener)
    if how == "end":
        assert WorkerStore(store, claim.worker_id).end(claim, ExitReport(reason=EndReason.PREEMPTED)) is JobState.QUEUED
    else:
        db.expire(claim)
        assert sessions.write(store, end.rescue, claim)
    assert (line.waiting(store.queue), rang(listener)) == ([claim.job_id], True)


@pytest.mark.parametrize("what", ["cancel", "pause"])
def test_a_request_to_a_running_job_wakes_its_worker(
    store: Store, db: StoreFixture, listener: WakeupListener, what: Stop
) -> None:
    claim = running(store, db)
    rang(listener)
    ask(store, what, claim.job_id)
    assert (rang(listener), line.waiting(store.queue)) == (True, [])


def test_a_batch_is_announced_and_wakes_no_worker(store: Store, db: StoreFixture, listener: WakeupListener) -> None:
    claim = running(store, db)
    rang(listener)
    with store.write("other") as session:
        append.record(session, claim, Batch(offsets={}), seq=0)
        assert announcement_of(session).changed == {claim.job_id}
    assert not rang(listener)


def test_a_rolled_back_transaction_is_not_announced(store: Store, db: StoreFixture, listener: WakeupListener) -> None:
    job_id = db.submit()
    with suppress(Conflict), store.write("other") as session:
        stop.request_pause(session, job_id)
        raise Conflict("no")
    assert (db.job(job_id).state, rang(listener)) == (JobState.QUEUED, False)


def test_a_repeated_request_announces_what_redis_missed(store: Store, db: StoreFixture) -> None:
    job_id = db.submit()
    ask(store, "cancel", job_id)
    store.queue.announce(line.queued(job_id))
    ask(store, "cancel", job_id)
    assert line.waiting(store.queue) == []


def test_without_redis_everything_is_stored_with_one_warning(
    database: Database, db: StoreFixture, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(Queue(f"unix://{tmp_path / 'nowhere.sock'}", service=a_service)) as away:
        store = store_on(database, queue=away)
        claim = running(store, db)
        ask(store, "cancel", claim.job_id)
        assert store.sweep_line() is False
    assert db.job(claim.job_id).cancel_requested_at is not None
    assert caplog.text.count("workers and watchers poll meanwhile") == 1


def test_a_warning_names_few_of_many_jobs(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    store = store_on(database, queue=Queue("unix:///nonexistent", service=a_service))
    with closing(store.queue), store.write("submit") as session:
        announcement_of(session).mark_changed(*(f"job_{number:03}" for number in range(500)))
    assert "job_000, job_001, job_002, job_003, job_004 and 495 more" in caplog.text
