"""Revision 0044: a session that was opened before goes on, and says nothing of its last use."""

from contextlib import closing

from alembic import command

from migrations.actions import configuration
from store.db.database import Database
from store.facts.callers import SERVICE
from store.rows import tokens


def test_sessions_from_before_the_revision_go_on(database_url: str) -> None:
    with closing(Database(database_url)) as database, database.write() as session:
        opened = tokens.open_session(session, "credential", address="10.0.0.1")
    command.downgrade(configuration(database_url), "0042")
    command.upgrade(configuration(database_url), "head")
    with closing(Database(database_url)) as database, database.read() as session:
        (listed,) = tokens.sessions_of(session, SERVICE.name, credential="credential")
        assert (listed.digest, listed.used_at, listed.address) == (opened.digest, None, "")
        found = tokens.find_session(session, opened.cookie, csrf=opened.csrf)
        assert found is not None
        assert found.use_is_stale
