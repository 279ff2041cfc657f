"""Revision 0008 only adds columns: attempts of the version before are asked for their stacks as new ones are."""

from contextlib import closing

from alembic import command

from migrations.__main__ import configuration
from store.db.database import Database
from store.rows import attempts, stacks
from store.rows.stacks import Answer
from tests.store.fixture import StoreFixture


def test_an_attempt_that_runs_during_the_upgrade_can_be_asked_for_stacks(database_url: str) -> None:
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        claim = db.running(db.submit(), db.worker())
        db.write(lambda session: stacks.request(session, claim.job_id))
    command.downgrade(configuration(database_url), "0007")
    command.upgrade(configuration(database_url), "head")
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        assert db.read(lambda session: stacks.read(session, claim.job_id)) == (1, None, None)
        asked = db.write(lambda session: stacks.request(session, claim.job_id)).requested_at
        assert asked is not None
        answer = Answer(requested_at=asked, taken_at=asked, ranks=[{"rank": 0, "text": "in main", "note": None}])
        db.write(lambda session: attempts.store_stacks(session, claim, answer))
        assert db.read(lambda session: stacks.read(session, claim.job_id)) == (1, None, answer)
