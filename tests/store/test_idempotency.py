"""Idempotency keys: one answer for each, stored in the transaction of its job."""

import pytest
from sqlalchemy import select, update

from store.db.database import Session, now_us
from store.jobs import idempotency, jobs
from store.jobs.idempotency import KeyTaken
from store.jobs.submission import KeyedRequest
from store.tables import IdempotencyKey
from tests.databases import quick_on_sqlite
from tests.store.fixture import StoreFixture, new_job, run_together
from torchyard.contract.errors import IdempotencyMismatch
from torchyard.contract.spec.spec import parse_spec

SPEC = parse_spec({"trainer": "script", "config": {"code": "file:///code"}})
DAY_US = 24 * 3600 * 1_000_000


def request(key: str = "k", *, owner: str = "ada", fingerprint: str = "f") -> KeyedRequest:
    return KeyedRequest(owner=owner, key=key, fingerprint=fingerprint)


def make(session: Session, asked: KeyedRequest) -> str:
    """Submits a job as the API does. Returns its id."""
    known = idempotency.find_job(session, asked)
    if known is not None:
        return known
    job_id: str = new_job(session, SPEC, owner=asked.owner).id
    idempotency.store_keys(session, [(asked, job_id)])
    idempotency.delete_old(session)
    return job_id


def age(db: StoreFixture, microseconds: int) -> None:
    db.write(lambda s: s.execute(update(IdempotencyKey).values(created_at=now_us() - microseconds)))


def keys(db: StoreFixture) -> list[str]:
    return sorted(db.read(lambda session: session.scalars(select(IdempotencyKey.key)).all()))


def test_a_stored_answer_is_returned_unchanged(db: StoreFixture) -> None:
    assert db.read(lambda session: idempotency.find_job(session, request())) is None
    made = db.write(lambda session: make(session, request()))
    assert db.read(lambda session: idempotency.find_job(session, request())) == made
    assert db.read(lambda session: idempotency.find_job(session, request(owner="eve"))) is None
    with pytest.raises(IdempotencyMismatch, match=made):
        db.read(lambda session: idempotency.find_job(session, request(fingerprint="other")))


def test_a_key_expires_after_a_day_and_the_next_key_deletes_its_row(db: StoreFixture) -> None:
    first = db.write(lambda session: make(session, request()))
    age(db, DAY_US - 60_000_000)
    assert db.write(lambda session: make(session, request())) == first
    age(db, DAY_US)
    assert db.read(lambda session: idempotency.find_job(session, request(fingerprint="other"))) is None
    db.write(lambda session: make(session, request("next")))
    assert keys(db) == ["next"]


@quick_on_sqlite
def test_only_some_old_keys_are_deleted_per_call_and_an_old_key_can_be_reused(db: StoreFixture) -> None:
    for number in range(103):
        db.write(lambda session, key=f"old-{number:03}": make(session, request(key)))
    age(db, DAY_US + 1)
    db.write(lambda session: make(session, request("old-102")))
    assert "old-102" in keys(db)
    assert len(keys(db)) <= 4


def test_a_failed_transaction_stores_no_answer(db: StoreFixture) -> None:
    def fail(session: Session) -> None:
        make(session, request())
        raise RuntimeError

    with pytest.raises(RuntimeError):
        db.write(fail)
    assert keys(db) == []


def test_the_second_user_of_a_key_is_rolled_back(db: StoreFixture) -> None:
    def both_look_first(session: Session) -> str:
        job_id: str = new_job(session, SPEC).id
        idempotency.store_keys(session, [(request(), job_id)])
        return job_id

    for turn in range(8):
        answers = run_together(*[lambda: db.write(both_look_first)] * 2)
        first = turn == 0
        assert sum(isinstance(answer, str) for answer in answers) == first, answers
        assert sum(isinstance(answer, KeyTaken) for answer in answers) == 2 - first
    assert len(db.read(jobs.queued)) == 1


def test_concurrent_requests_with_old_keys_do_not_deadlock(db: StoreFixture) -> None:
    for number in range(8):
        db.write(lambda session, key=f"k{number}": make(session, request(key)))
    age(db, DAY_US + 1)
    answers = run_together(*[lambda key=f"k{number}": db.write(lambda s: make(s, request(key))) for number in range(8)])
    assert all(isinstance(answer, str) for answer in answers), answers
    assert keys(db) == [f"k{number}" for number in range(8)]
