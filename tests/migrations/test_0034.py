"""Revision 0034: jobs of before are in no sweep, and jobs of a sweep outlive a downgrade."""

from contextlib import closing

from alembic import command
import pytest

from migrations.actions import configuration
from store.db.database import Database
from store.facts.callers import SERVICE
from store.facts.submission import NewJob, TrialOf
from store.facts.sweeps import SweepFilter
from store.rows import new_jobs, sweeps
from tests.store.fixture import StoreFixture


@pytest.mark.thorough
def test_jobs_of_before_are_in_no_sweep(database_url: str) -> None:
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        trial = NewJob(db.spec(), "ada", trial=TrialOf("swp_1", 3))
        job_id = db.write(lambda session: new_jobs.submit_all(session, [trial]))[0][0].id
        assert (db.job(job_id).sweep_id, db.job(job_id).trial) == ("swp_1", 3)
    command.downgrade(configuration(database_url), "0033")
    command.upgrade(configuration(database_url), "head")
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        assert (db.job(job_id).sweep_id, db.job(job_id).trial) == (None, None)
        assert db.read(lambda session: sweeps.listed(session, SweepFilter(), SERVICE, limit=1)) == []
