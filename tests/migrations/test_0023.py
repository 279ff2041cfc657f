"""Revision 0023 puts the jobs that wait into the line as this version would have put them there."""

from contextlib import closing

from alembic import command
import pytest
from sqlalchemy import update

from migrations.actions import configuration
from store.db.database import Database
from store.db.tables import Job
from store.line.line import line_of
from tests.store.fixture import StoreFixture


@pytest.mark.thorough
def test_jobs_that_wait_have_their_places_and_shapes(database_url: str) -> None:
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        jobs = [
            db.submit(),
            db.submit(resources={"device": "cpu"}, preemptible=True),
            db.submit(resources={"device": "cuda"}, time_limit="90s", priority=3),
        ]
        db.submit(owner="bob", time_limit="3650d")
        ended = db.submit(resources={"device": "cpu"})
        db.cancel(ended)
        db.write(lambda session: session.execute(update(Job).where(Job.id == jobs[0]).values(ran_us=10**11)))
        # As it would be if it were queued again now.
        db.pause(jobs[0])
        db.resume(jobs[0])
        before = {job.id: (job.shape, job.device_request) for job in map(db.job, [*jobs, ended])}
        heads, buckets = db.read(lambda session: (line_of(session).heads(), line_of(session).buckets()))
    command.downgrade(configuration(database_url), "0022")
    with closing(Database(database_url)) as database, database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE jobs SET shape = 'old' WHERE state = 'queued'")
    command.upgrade(configuration(database_url), "head")
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        assert {job.id: (job.shape, job.device_request) for job in map(db.job, before)} == before
        found = db.read(lambda session: (line_of(session).heads(), line_of(session).buckets()))
        assert found == (heads, buckets)
        joined = [(job.lined_at, job.reason_since if job.state == "queued" else 0) for job in map(db.job, before)]
        assert [at for at, _ in joined] == [since for _, since in joined], "revision 0024 knows since when they wait"
