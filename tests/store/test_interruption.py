"""A read that nobody waits for any more ends, on both databases."""

import threading

import pytest
from sqlalchemy import text

from store.interruption import Interruption
from tests.databases import on_both
from tests.store.fixture import StoreFixture
from torchyard.contract.errors import Unavailable

_ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i % 1000 + 1 FROM n) SELECT count(*) FROM n"


@on_both
def test_a_statement_that_is_executed_ends(db: StoreFixture) -> None:
    interruption = Interruption()
    errors: list[Unavailable] = []

    def read() -> None:
        with interruption.during(), pytest.raises(Unavailable) as raised:
            db.read(lambda session: session.execute(text(_ENDLESS)).scalar())
        errors.append(raised.value)

    reading = threading.Thread(target=read)
    reading.start()
    while reading.is_alive():
        interruption.interrupt()
        reading.join(0.01)
    assert len(errors) == 1
    assert db.read(lambda session: session.execute(text("SELECT 1")).scalar()) == 1


@on_both
def test_later_reads_are_refused_and_others_are_not(db: StoreFixture) -> None:
    interruption = Interruption()
    with interruption.during():
        assert db.read(lambda session: session.execute(text("SELECT 1")).scalar()) == 1
    interruption.interrupt()
    with interruption.during(), pytest.raises(Unavailable, match="has left"):
        db.read(lambda session: session.execute(text("SELECT 1")).scalar())
    assert db.read(lambda session: session.execute(text("SELECT 1")).scalar()) == 1
