"""Revision 0049 counts what owners have stored, and from then on the database does."""

from contextlib import closing

from alembic import command
import pytest

from migrations.actions import configuration
from store.db.database import Database
from store.facts.output import NewLines
from store.rows import stored_counts
from store.rows.stored_counts import Stored
from tests.store.fixture import StoreFixture, checkpoint


def _stored(database_url: str) -> Stored:
    with closing(Database(database_url)) as database:
        return StoreFixture(database).read(lambda session: stored_counts.of(session, "ada"))


@pytest.mark.thorough
def test_what_was_stored_before_is_counted(database_url: str) -> None:
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        claim = db.running(db.submit(), db.worker())
        db.record(claim, seq=0, lines=[NewLines(0, "stdout", ["line"])], checkpoints=[checkpoint("step-1", step=1)])
    before = _stored(database_url)
    assert before.files > 5 and before.written > 100
    command.downgrade(configuration(database_url), "0048")
    command.upgrade(configuration(database_url), "head")
    assert _stored(database_url) == before
    with closing(Database(database_url)) as database:
        StoreFixture(database).submit()
    assert _stored(database_url).written > before.written
