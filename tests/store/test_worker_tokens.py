"""Tokens of remote workers."""

import pytest

from store.cluster import worker_tokens
from store.ids import new_id
from tests.store.fixture import StoreFixture

WORKER = new_id("wrk")


def test_a_worker_has_one_live_token_of_which_only_a_digest_is_stored(db: StoreFixture) -> None:
    first = db.write(lambda session: worker_tokens.issue(session, WORKER))
    second = db.write(lambda session: worker_tokens.issue(session, WORKER))
    assert first.startswith("tyw_") and first != second
    found = [db.read(lambda session, text=text: worker_tokens.find_worker(session, text)) for text in (first, second)]
    assert found == [None, WORKER]
    assert second.rpartition("_")[2] not in str(db.everything())

    db.write(lambda session: worker_tokens.revoke(session, WORKER))
    assert db.read(lambda session: worker_tokens.find_worker(session, second)) is None


@pytest.mark.parametrize("text", ["", "tyw_", "tyw__", "ty_1_2", f"{WORKER}_x", "tyw_%_x"])
def test_what_is_no_token_is_of_no_worker(db: StoreFixture, text: str) -> None:
    db.write(lambda session: worker_tokens.issue(session, WORKER))
    assert db.read(lambda session: worker_tokens.find_worker(session, text)) is None
