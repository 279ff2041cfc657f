"""Revision 0026 counts the jobs that there are, and from then on the database does."""

from contextlib import closing

from alembic import command
import pytest

from migrations.actions import configuration
from store.db.database import Database
from store.facts.callers import SERVICE
from store.rows import job_counts
from tests.store.fixture import StoreFixture
from torchyard.contract.job import JobState


@pytest.mark.thorough
def test_the_jobs_of_before_are_counted(database_url: str) -> None:
    with closing(Database(database_url)) as database:
        StoreFixture(database).submit_many(3)
    command.downgrade(configuration(database_url), "0025")
    command.upgrade(configuration(database_url), "head")
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        db.cancel(db.submit())
        found = db.read(lambda session: job_counts.by_state(session, caller=SERVICE))
    assert found == {JobState.QUEUED: 3, JobState.CANCELLED: 1}
