"""Revision 0022 tells of earlier attempts when they became running."""

from contextlib import closing

from alembic import command
import pytest

from migrations.actions import configuration
from store.db.database import Database
from tests.store.fixture import StoreFixture
from torchyard.contract.job import EndReason


@pytest.mark.thorough
def test_attempts_of_before_have_the_time_of_their_event(database_url: str) -> None:
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        worker = db.worker()
        first = db.running(db.submit(), worker)
        db.end(first, EndReason.PREEMPTED)
        second = db.running(first.job_id, worker)
        starts = db.starting(db.submit(), worker, "slot-b")
        times = [event.time for event in db.events(first.job_id) if event.data.get("to") == "running"]
    command.downgrade(configuration(database_url), "0021")
    command.upgrade(configuration(database_url), "head")
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        found = [db.attempt(claim).running_at for claim in (first, second, starts)]
    assert found == [*times, None]
