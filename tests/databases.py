"""Databases for tests, of both kinds: files, and databases of a server. One test uses each during its `with` block.

A migrated one is a copy of a template, because a migration costs more than most tests. On PostgreSQL a copy does, too:
there the database is emptied and reused.
"""

from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
import shutil
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from alembic import command
from alembic.script import ScriptDirectory
import psycopg
import pytest

from migrations.actions import configuration
from store.db.database import Database
from store.tables import Base
from tests import forks
from tests.postgresql import PostgreSQLServer, postgresql_server

on_both = pytest.mark.parametrize("databases", ["sqlite", "postgresql"], indirect=True)
"""Marks a test that depends on SQL, in a folder whose other tests run on SQLite only."""
quick_on_sqlite = pytest.mark.parametrize(
    "databases", ["sqlite", pytest.param("postgresql", marks=pytest.mark.thorough)], indirect=True
)
"""Runs a slow test on SQLite, and on PostgreSQL only in `make test-thorough`. Quick tests run its statements there."""
quick_on_postgresql = pytest.mark.parametrize(
    "databases", ["postgresql", pytest.param("sqlite", marks=pytest.mark.thorough)], indirect=True
)
"""Runs a slow test of writers at once on PostgreSQL, where they hold each other up least."""

_MEMORY_BYTES = 1 << 30
_TEMPLATE = "migrated"
_HEADS = b"SELECT version_num FROM alembic_version"
_FILLED = b" UNION ALL ".join(
    f"SELECT '{table}' WHERE EXISTS (SELECT FROM {table})".encode() for table in Base.metadata.tables
)
_DISCONNECT = (
    b"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
    b" WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
_RESTART = b"SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false) FROM pg_sequences"


class Opened:
    """Databases by their URLs. They are kept closed between tests, as each one compiles its statements once."""

    def __init__(self) -> None:
        self._known: dict[str, Database] = {}

    @contextmanager
    def at(self, url: str) -> Generator[Database]:
        if url not in self._known:
            self._known[url] = Database(url)
        database = self._known[url]
        try:
            yield database
        finally:
            database.close()


@cache
def migrated_sqlite() -> bytes:
    """Returns the file of a migrated SQLite database. Workers have that of the process that they are forks of."""
    with TemporaryDirectory(dir=in_memory()) as folder:
        path = Path(folder) / "template"
        command.upgrade(configuration(f"sqlite:///{path}"), "head")
        return path.read_bytes()


@cache
def migrated_postgresql() -> bytes:
    """Returns the data of a server that has a migrated database, the template of others, as `migrated_sqlite`."""
    with postgresql_server() as server:
        with psycopg.connect(server.conninfo, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {_TEMPLATE} TEMPLATE template0".encode())
        command.upgrade(configuration(server.url(_TEMPLATE)), "head")
        return server.packed()


forks.make_first(migrated_sqlite)
forks.make_first(migrated_postgresql)


def in_memory() -> Path | None:
    """Returns a folder that is in memory, if there is one with enough space: on a disk each commit waits."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and shutil.disk_usage(memory).free > _MEMORY_BYTES else None


class SQLiteDatabases:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._spare: list[str] = []
        self.opened = Opened()

    @contextmanager
    def empty(self) -> Generator[str]:
        """The URL of a database without tables."""
        name = uuid4().hex
        try:
            yield self._url(name)
        finally:
            self._remove(name)

    @contextmanager
    def migrated(self) -> Generator[str]:
        """The URL of a database with the newest tables and no rows."""
        name = self._spare.pop() if self._spare else uuid4().hex
        (self._folder / name).write_bytes(migrated_sqlite())
        try:
            yield self._url(name)
        finally:
            self._remove(name)
            self._spare.append(name)

    def _remove(self, name: str) -> None:
        for path in self._folder.glob(f"{name}*"):
            path.unlink(missing_ok=True)

    def _url(self, name: str) -> str:
        return f"sqlite:///{self._folder / name}"


class PostgreSQLDatabases:
    """Those of a server that began with `migrated_postgresql`."""

    def __init__(self, server: PostgreSQLServer) -> None:
        self._server = server
        self._spare: list[str] = []
        self._emptying: dict[str, psycopg.Connection[Any]] = {}
        self.opened = Opened()
        self.binaries = server.binaries

    def close(self) -> None:
        for connection in self._emptying.values():
            connection.close()

    @contextmanager
    def empty(self) -> Generator[str]:
        """Does what SQLiteDatabases does."""
        name = self._create(template="template0")
        try:
            yield self._server.url(name)
        finally:
            self._drop(name)

    @contextmanager
    def migrated(self) -> Generator[str]:
        """Does what SQLiteDatabases does."""
        name = self._spare.pop() if self._spare else self._create(template=_TEMPLATE)
        try:
            yield self._server.url(name)
        finally:
            if self._is_emptied(name):
                self._spare.append(name)
            else:
                self._drop(name)

    def _create(self, *, template: str) -> str:
        name = f"test_{uuid4().hex}"
        self._run(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return name

    def _drop(self, name: str) -> None:
        if name in self._emptying:
            self._emptying.pop(name).close()
        self._run(f"DROP DATABASE {name} WITH (FORCE)")

    def _is_emptied(self, name: str) -> bool:
        """Empties the database. Returns False if the test has changed its tables."""
        try:
            self._own_connection(name).execute(_DISCONNECT)
        except psycopg.OperationalError:  # a test that takes the database away ends this connection, too
            self._own_connection(name).execute(_DISCONNECT)
        connection = self._own_connection(name)
        if connection.execute(_HEADS).fetchall() != [(_head(),)]:
            return False
        filled = [table for (table,) in connection.execute(_FILLED).fetchall()]
        # Twenty times as fast as TRUNCATE, which makes new files.
        deletions = "".join(f"DELETE FROM {table};" for table in filled)
        connection.execute(f"SET session_replication_role = replica;{deletions}".encode())
        connection.execute(_RESTART)
        return True

    def _own_connection(self, name: str) -> psycopg.Connection[Any]:
        """Returns one that stays open: half of what emptying costs is a new one, which has to read the catalog."""
        known = self._emptying.get(name)
        if known is None or known.closed:
            known = self._emptying[name] = psycopg.connect(self._server.url(name), autocommit=True)
        return known

    def _run(self, statement: str) -> None:
        with psycopg.connect(self._server.conninfo, autocommit=True) as connection:
            connection.execute(statement.encode())


Databases = SQLiteDatabases | PostgreSQLDatabases


@contextmanager
def unavailable(database: Database) -> Generator[None]:
    """Makes the database unavailable: PostgreSQL refuses connections, SQLite has no table of attempts."""
    if database.engine.dialect.name == "sqlite":
        _rename(database, "attempts", "away")
        try:
            yield
        finally:
            _rename(database, "away", "attempts")
        return
    url = database.engine.url
    with psycopg.connect(host=str(url.query["host"]), user=url.username, dbname="postgres", autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {url.database} ALLOW_CONNECTIONS false".encode())
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [url.database])
        try:
            yield
        finally:
            admin.execute(f"ALTER DATABASE {url.database} ALLOW_CONNECTIONS true".encode())


@cache
def _head() -> str | None:
    return ScriptDirectory.from_config(configuration("sqlite://")).get_current_head()


def _rename(database: Database, old: str, new: str) -> None:
    with database.write() as session:
        session.connection().exec_driver_sql("PRAGMA legacy_alter_table=ON")
        session.connection().exec_driver_sql(f"ALTER TABLE {old} RENAME TO {new}")
