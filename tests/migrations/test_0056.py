"""Revision 0056 keeps bundles that were there before: they have no parts that could be copied, and no name."""

from contextlib import closing

from alembic import command

from migrations.actions import configuration
from store.db.database import Database
from store.rows import bundles
from tests.store.fixture import StoreFixture

SHA256 = "ab" * 32


def test_a_bundle_that_was_there_before_has_no_parts_and_no_name(database_url: str) -> None:
    with closing(Database(database_url)) as database:
        store = StoreFixture(database)
        store.write(lambda session: bundles.add(session, "ada", SHA256, size=9, files=1, parts=bytes(36)))
        store.write(lambda session: bundles.give_name(session, "ada", SHA256, "mnist"))
    command.downgrade(configuration(database_url), "0054")
    command.upgrade(configuration(database_url), "head")
    with closing(Database(database_url)) as database:
        store = StoreFixture(database)
        found = store.read(lambda session: bundles.find(session, "ada", SHA256))
        assert found is not None
        assert (found.size, found.files, found.name) == (9, 1, None)
        assert store.read(lambda session: bundles.parts_of(session, "ada", most=9, bundles=9)) == []
