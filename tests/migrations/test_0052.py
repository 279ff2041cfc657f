"""Revision 0052: what a download sends is beside the files, and is made of those of checkpoints from before."""

from contextlib import closing

from alembic import command
from sqlalchemy import text

from migrations.actions import configuration
from store.db.database import Database
from store.facts.checkpoints import sent_of
from store.rows import checkpoints
from tests.store.fixture import StoreFixture, checkpoint


def test_a_checkpoint_from_before_the_revision_sends_the_same(database_url: str) -> None:
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        job_id = db.submit()
        claim = db.running(job_id, db.worker())
        db.record(claim, seq=0, checkpoints=[checkpoint("step-1", step=1)])
    command.downgrade(configuration(database_url), "0049")
    command.upgrade(configuration(database_url), "head")
    with closing(Database(database_url)) as database, database.read() as session:
        assert [*session.execute(text("SELECT files_bytes, sent FROM checkpoints"))] == [(None, None)]
        [found] = checkpoints.newest_first(session, job_id)
        assert not found.files_omitted
        assert found.main_file == sent_of(found.files, of="it")
