"""Requests for stacks in the rows of attempts."""

import pytest

from store.attempts import stacks
from store.attempts import state as attempts
from store.db.database import Database
from store.output.facts import Answer
from tests.store.fixture import StoreFixture
from torchyard.contract.errors import Conflict, StaleClaim
from torchyard.contract.states import EndReason


@pytest.fixture
def db(database: Database) -> StoreFixture:
    return StoreFixture(database)


def test_an_answer_removes_the_request_that_it_answers_and_no_later_one(db: StoreFixture) -> None:
    claim = db.running(db.submit(), db.worker())
    asked = db.write(lambda session: stacks.request(session, claim.job_id)).requested_at
    assert asked is not None
    older = Answer(requested_at=asked - 1, taken_at=asked, ranks=[])
    db.write(lambda session: attempts.store_stacks(session, claim, older))
    found = db.read(lambda session: stacks.read(session, claim.job_id))
    assert (found.attempt, found.requested_at, found.answer) == (1, asked, older)
    answer = Answer(requested_at=asked, taken_at=asked + 1, ranks=[{"rank": 0, "text": "a NUL: \0", "note": None}])
    db.write(lambda session: attempts.store_stacks(session, claim, answer))
    found = db.read(lambda session: stacks.read(session, claim.job_id))
    assert found.requested_at is None
    assert found.answer is not None
    assert found.answer["ranks"][0]["text"] == "a NUL: \ufffd"


def test_the_end_of_an_attempt_removes_its_stacks(db: StoreFixture) -> None:
    claim = db.running(db.submit(), db.worker())
    asked = db.write(lambda session: stacks.request(session, claim.job_id)).requested_at
    answer = Answer(requested_at=(asked or 0) - 1, taken_at=1, ranks=[])
    db.write(lambda session: attempts.store_stacks(session, claim, answer))
    db.end(claim, EndReason.PREEMPTED)
    row = next(row for row in db.everything()["attempts"] if row["id"] == claim.attempt_id)
    assert (row["stacks"], row["stacks_requested_at"]) == (None, None)
    with pytest.raises(StaleClaim):
        db.write(lambda session: attempts.store_stacks(session, claim, answer))
    with pytest.raises(Conflict, match="is queued"):
        db.write(lambda session: stacks.request(session, claim.job_id))
    db.starting(claim.job_id, db.worker("box-b"))
    found = db.read(lambda session: stacks.read(session, claim.job_id))
    assert (found.attempt, found.requested_at, found.answer) == (2, None, None)
