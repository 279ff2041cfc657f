"""Revision 0037 counts archived jobs apart, and without it all jobs are counted together."""

from contextlib import closing

from alembic import command

from migrations.actions import configuration
from store.db.database import Database
from store.facts.callers import SERVICE
from store.rows import edits, job_counts
from tests.store.fixture import StoreFixture
from torchyard.contract.job import JobState
from torchyard.contract.patches import JobPatch


def counted(db: StoreFixture, *, archived: bool) -> dict[JobState, int]:
    return db.read(lambda session: job_counts.by_state(session, caller=SERVICE, archived=archived))


def archive_one(db: StoreFixture, job_id: str) -> None:
    db.write(lambda session: edits.change(session, job_id, JobPatch(archived=True)))


def test_jobs_are_counted_on_both_sides_of_the_revision(database_url: str) -> None:
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        first, second = db.submit_many(2)
        for job_id in (first, second):
            db.cancel(job_id)
        archive_one(db, first)
        assert (counted(db, archived=False), counted(db, archived=True)) == (
            {JobState.CANCELLED: 1},
            {JobState.CANCELLED: 1},
        )
    command.downgrade(configuration(database_url), "0036")
    command.upgrade(configuration(database_url), "head")
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        assert (counted(db, archived=False), counted(db, archived=True)) == ({JobState.CANCELLED: 2}, {})
        archive_one(db, second)
        assert (counted(db, archived=False), counted(db, archived=True)) == (
            {JobState.CANCELLED: 1},
            {JobState.CANCELLED: 1},
        )
