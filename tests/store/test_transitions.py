"""The only function that changes a state: every transition from every state."""

import pytest
from sqlalchemy import update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from store.db.database import now_us
from store.jobs import jobs
from store.tables import Job
from tests.rows import each_row
from tests.store.fixture import StoreFixture
from torchyard.contract.states import TRANSITIONS, JobState, Reason

REASON = Reason("test", "for the test")


def put(db: StoreFixture, job_id: str, state: JobState) -> None:
    values = {"state": state, "finished_at": now_us() if state.terminal else None}
    db.write(lambda session: session.execute(update(Job).where(Job.id == job_id).values(values)))


def move(db: StoreFixture, job_id: str, target: JobState) -> Job | None:
    return db.write(lambda session: jobs.transition(session, job_id, target, reason=REASON, detail={"note": 1}))


@each_row("source", JobState)
def test_an_allowed_transition_writes_one_event_and_a_forbidden_one_nothing(db: StoreFixture, source: JobState) -> None:
    forbidden = db.submit()
    put(db, forbidden, source)
    before = db.everything()
    for target in JobState:
        if target not in TRANSITIONS[source]:
            assert move(db, forbidden, target) is None
    assert db.everything() == before
    for target in TRANSITIONS[source]:
        job_id = db.submit()
        put(db, job_id, source)
        moved = move(db, job_id, target)
        assert_moved(db, job_id, moved, source=source, target=target)


def assert_moved(db: StoreFixture, job_id: str, moved: Job | None, *, source: JobState, target: JobState) -> None:
    job = db.job(job_id)
    assert moved is not None
    assert (moved.state, moved.version) == (job.state, job.version) == (target, 2)
    assert (job.finished_at is not None) == target.terminal
    assert (job.reason_code, job.reason_message) == ("test", "for the test")
    submitted, event = db.events(job_id)
    assert submitted.data["to"] == "queued"
    assert (event.seq, event.type, job.position) == (2, "state", 2)
    assert event.data == {
        "from": source,
        "to": target,
        "reason": {"code": "test", "message": "for the test"},
        "note": 1,
    }


def test_a_missing_job_has_no_transition(db: StoreFixture) -> None:
    assert move(db, "job_" + "0" * 32, JobState.CANCELLED) is None


@each_row("state", list(JobState))
def test_the_database_refuses_a_finish_time_that_contradicts_the_state(db: StoreFixture, state: JobState) -> None:
    job_id = db.submit()
    wrong = {"state": state, "finished_at": None if state.terminal else now_us()}

    def write(session: Session) -> None:
        session.execute(update(Job).where(Job.id == job_id).values(wrong))

    with pytest.raises(IntegrityError):
        db.write(write)
    assert db.job(job_id).state == JobState.QUEUED


def test_a_transition_is_rolled_back_with_its_transaction(db: StoreFixture) -> None:
    job_id = db.submit()
    before = db.everything()

    def change(session: Session) -> None:
        assert jobs.transition(session, job_id, JobState.CANCELLED, reason=REASON) is not None
        raise KeyError("the caller failed")

    with pytest.raises(KeyError):
        db.write(change)
    assert db.everything() == before
