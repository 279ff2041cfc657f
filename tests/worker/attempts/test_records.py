"""What a worker's books say of an attempt that is not the worker's any more."""

from collections.abc import Callable
import threading

import pytest

from store.db.database import Database
from store.rows import deletion
from store.rows.attempts import Batch, Claim
from tests.store.fixture import StoreFixture, store_on
from torchyard.contract.errors import StaleClaim
from torchyard.contract.job import EndReason
from worker.attempts.records import Records


@pytest.fixture
def yard(database: Database) -> StoreFixture:
    return StoreFixture(database)


def deleted(yard: StoreFixture, claim: Claim) -> None:
    yard.end(claim, EndReason.COMPLETED)
    yard.write(lambda session: deletion.delete_job(session, claim.job_id))


def replaced(yard: StoreFixture, claim: Claim) -> None:
    """On SQLite the next attempt has the number of the deleted one; it has stored a batch, too."""
    deleted(yard, claim)
    yard.record(yard.running(yard.submit(), yard.worker()), seq=0)


def rescued(yard: StoreFixture, claim: Claim) -> None:
    yard.expire(claim)
    assert yard.rescue(claim)


@pytest.mark.parametrize("lose", [deleted, replaced, rescued])
def test_an_attempt_that_is_lost_is_stale_whatever_is_asked(
    yard: StoreFixture, lose: Callable[[StoreFixture, Claim], None]
) -> None:
    claim = yard.running(yard.submit(), yard.worker())
    records = Records(store_on(yard.database), claim, leaving=threading.Event())
    records.read()
    lose(yard, claim)
    for ask in (lambda: records.record(Batch(offsets={})), records.wanted_end, records.read):
        with pytest.raises(StaleClaim):
            ask()
