"""Revision 0003 only adds columns, and its downgrade leaves no checkpoint whose blobs were removed."""

from contextlib import closing

from alembic import command
from sqlalchemy import text

from migrations.__main__ import configuration
from store.db.database import Database
from store.rows import checkpoints
from tests.store.fixture import StoreFixture, checkpoint


def test_older_programs_do_not_see_removed_checkpoints(database_url: str) -> None:
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        claim = db.running(db.submit(checkpoint={"keep_last": 1}), db.worker())
        new = [checkpoint(f"c{step}", step=step) for step in (1, 2)]
        db.record(claim, seq=0, checkpoints=new, card={"parameters": 62})
        assert db.job(claim.job_id).card == {"parameters": 62}

    command.downgrade(configuration(database_url), "0002")

    with closing(Database(database_url)) as database, database.read() as session:
        assert session.execute(text("SELECT name FROM checkpoints")).scalars().all() == ["c2"]

    command.upgrade(configuration(database_url), "head")

    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        assert db.job(claim.job_id).card is None
        (listed,) = db.read(lambda session: checkpoints.listed(session, db.job(claim.job_id)))
        assert listed.aliases == ["latest", "step-2"]
