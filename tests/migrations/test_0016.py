"""Revision 0016 ends the sessions of browsers, which a cookie alone opened, and no token."""

from contextlib import closing

from alembic import command
from sqlalchemy import text

from migrations.__main__ import configuration
from store.db.database import Database
from store.rows import tokens, users
from torchyard.contract.team import Role, Scope

OLD = "INSERT INTO browser_sessions (digest, credential, created_at, expires_at) VALUES ('d', 'c', 1, 9000000000000000)"


def test_sessions_of_the_version_before_end_and_tokens_stay(database_url: str) -> None:
    with closing(Database(database_url)) as database, database.write() as session:
        users.add(session, "alice", Role.MEMBER)
        _, token = tokens.make(session, "alice", name="laptop", scopes=[Scope.JOBS_READ], lifetime=None)
    command.downgrade(configuration(database_url), "0015")
    with closing(Database(database_url)) as database, database.write() as session:
        session.execute(text(OLD))
    command.upgrade(configuration(database_url), "head")
    with closing(Database(database_url)) as database, database.write() as session:
        assert tokens.find_session_by_digest(session, "d") is None
        identity = tokens.find(session, token)
        assert identity is not None
        opened = tokens.open_session(session, identity.token_id)
        assert tokens.find_session(session, opened.cookie, csrf="") is None
        assert tokens.find_session(session, opened.cookie, csrf=opened.csrf) is not None
    command.downgrade(configuration(database_url), "0015")
    with closing(Database(database_url)) as database, database.read() as session:
        assert session.execute(text("SELECT count(*) FROM browser_sessions")).scalar_one() == 0
    command.upgrade(configuration(database_url), "head")
