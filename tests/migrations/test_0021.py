"""Revision 0021 gives jobs that an older program has left without a shape theirs, by which workers find them."""

from contextlib import closing

from alembic import command
import pytest
from sqlalchemy import text

from migrations.actions import configuration
from store.db.database import Database
from tests.store.fixture import StoreFixture


@pytest.mark.thorough
def test_jobs_without_a_shape_join_the_groups_of_jobs_like_them(database_url: str) -> None:
    with closing(Database(database_url)) as database:
        first = StoreFixture(database).submit()
    command.downgrade(configuration(database_url), "0020")
    with closing(Database(database_url)) as database, database.write() as session:
        session.execute(text("UPDATE jobs SET shape = NULL"))
    command.upgrade(configuration(database_url), "head")
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        assert db.job(db.submit()).shape == db.job(first).shape
        assert db.heads() == [first]
