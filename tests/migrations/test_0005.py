"""Revision 0005 writes no row: the first pass of a worker puts waiting jobs into their groups."""

from contextlib import closing

from alembic import command

from migrations.__main__ import configuration
from store.commands import placement
from store.db.database import Database
from store.rows import waiting
from tests.store.fixture import StoreFixture, store_on


def test_jobs_queued_before_the_upgrade_are_found_in_their_groups(database_url: str) -> None:
    with closing(Database(database_url)) as database:
        alike = [StoreFixture(database).submit() for _ in range(3)]
        large = StoreFixture(database).submit(resources={"devices_per_node": 2})
    command.downgrade(configuration(database_url), "0004")
    command.upgrade(configuration(database_url), "head")
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        assert db.job(large).shape is None
        assert db.read(waiting.group_heads) == []
        placement.group_waiting_jobs(store_on(database))
        assert {head.id for head in db.read(waiting.group_heads)} == {alike[0], large}
        assert db.job(db.submit()).shape == db.job(alike[0]).shape
