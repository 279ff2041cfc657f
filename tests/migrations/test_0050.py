"""Revision 0050 gives checkpoints the time of their saving, in the order that they had."""

from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import replace

from alembic import command
import pytest
from sqlalchemy import update

from migrations.actions import configuration
from store.db.database import Database
from store.db.tables import Attempt, Checkpoint
from store.facts.checkpoints import CAPTURED, captured_name
from store.rows import checkpoints
from tests.store.fixture import StoreFixture, checkpoint
from torchyard.contract.job import EndReason


@contextmanager
def store(database_url: str) -> Generator[StoreFixture]:
    with closing(Database(database_url)) as database:
        yield StoreFixture(database)


@pytest.mark.thorough
def test_the_order_of_what_was_saved_before_stays(database_url: str) -> None:
    with store(database_url) as db:
        claim = db.running(db.submit(), db.worker())
        file = replace(checkpoint(captured_name("ab", modified_ns=77, size=5), step=0), source=CAPTURED)
        db.record(claim, seq=0, checkpoints=[checkpoint("a", step=9), checkpoint("b", step=3), file])
        db.write(lambda session: session.execute(update(Checkpoint).values(created_at=1000)))
        past = update(Attempt).values(start_step=4)
        db.write(lambda session: session.execute(past))
    command.downgrade(configuration(database_url), "0049")
    command.upgrade(configuration(database_url), "head")
    with store(database_url) as db:
        found = db.read(lambda session: checkpoints.newest_first(session, claim.job_id))
        assert [(row.name, row.saved_at, row.damaged) for row in found] == [
            ("a", 1_000_002, False),
            ("b", 1_000_001, False),
            (file.name, 77, False),
        ]
        assert db.attempt(claim).hides_after == 4
        db.end(claim, EndReason.WORKER_LOST)


@pytest.mark.thorough
def test_the_copy_of_a_captured_file_in_a_retried_job_is_captured(database_url: str) -> None:
    with store(database_url) as db:
        claim = db.running(db.submit(), db.worker())
        name = captured_name("ab", modified_ns=77, size=5)
        db.record(claim, seq=0, checkpoints=[checkpoint(name, step=1), checkpoint("a", step=1)])
        db.write(lambda session: session.execute(update(Checkpoint).values(attempt=0)))
    command.downgrade(configuration(database_url), "0049")
    command.upgrade(configuration(database_url), "head")
    with store(database_url) as db:
        found = db.read(lambda session: checkpoints.newest_first(session, claim.job_id))
    assert {row.name: row.source for row in found} == {name: CAPTURED, "a": None}
