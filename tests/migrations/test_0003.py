"""Revision 0003 adds to what is there, and its way back leaves no checkpoint whose bytes are gone."""

from contextlib import closing

from alembic import command
from sqlalchemy import text

from migrations.__main__ import configuration
from store.db.database import Database
from store.rows import checkpoints
from tests.store.yard import Yard, checkpoint


def test_older_programs_see_no_removed_checkpoint(database_url: str) -> None:
    with closing(Database(database_url)) as database:
        yard = Yard(database)
        claim = yard.running(yard.submit(checkpoint={"keep_last": 1}), yard.worker())
        new = [checkpoint(f"c{step}", step=step) for step in (1, 2)]
        yard.record(claim, seq=0, checkpoints=new, card={"parameters": 62})
        assert yard.job(claim.job_id).card == {"parameters": 62}

    command.downgrade(configuration(database_url), "0002")

    with closing(Database(database_url)) as database, database.read() as session:
        assert session.execute(text("SELECT name FROM checkpoints")).scalars().all() == ["c2"]

    command.upgrade(configuration(database_url), "head")

    with closing(Database(database_url)) as database:
        yard = Yard(database)
        assert yard.job(claim.job_id).card is None
        (listed,) = yard.read(lambda session: checkpoints.listed(session, yard.job(claim.job_id)))
        assert listed.aliases == ["latest", "step-2"]
