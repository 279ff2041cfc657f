"""Databases for tests, of both kinds: files, and databases of a server. Each lives as long as its `with` block.

A migrated one is a copy of a template: migrating costs more than most tests do.
"""

from collections.abc import Generator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
import shutil
from uuid import uuid4

from alembic import command
import psycopg

from migrations.__main__ import configuration
from store.database import Database
from tests.postgresql import PostgreSQLServer


class SQLiteDatabases:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def empty(self) -> Generator[str]:
        """The URL of a database without tables."""
        yield self._url(uuid4().hex)

    @contextmanager
    def migrated(self) -> Generator[str]:
        """The URL of a database with the newest tables and no rows."""
        name = uuid4().hex
        shutil.copy(self._folder / self._template, self._folder / name)
        yield self._url(name)

    @cached_property
    def _template(self) -> str:
        command.upgrade(configuration(self._url("template")), "head")
        return "template"

    def _url(self, name: str) -> str:
        return f"sqlite:///{self._folder / name}"


class PostgreSQLDatabases:
    def __init__(self, server: PostgreSQLServer) -> None:
        self._server = server
        self.binaries = server.binaries

    @contextmanager
    def empty(self) -> Generator[str]:
        """As of SQLiteDatabases."""
        with self._created(template="template0") as url:
            yield url

    @contextmanager
    def migrated(self) -> Generator[str]:
        """As of SQLiteDatabases."""
        with self._created(template=self._template) as url:
            yield url

    @cached_property
    def _template(self) -> str:
        self._run("CREATE DATABASE migrated TEMPLATE template0")
        command.upgrade(configuration(self._server.url("migrated")), "head")
        return "migrated"

    @contextmanager
    def _created(self, *, template: str) -> Generator[str]:
        name = f"test_{uuid4().hex}"
        self._run(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        try:
            yield self._server.url(name)
        finally:
            self._run(f"DROP DATABASE {name} WITH (FORCE)")

    def _run(self, statement: str) -> None:
        with psycopg.connect(self._server.conninfo, autocommit=True) as connection:
            connection.execute(statement.encode())


Databases = SQLiteDatabases | PostgreSQLDatabases


@contextmanager
def away(database: Database) -> Generator[None]:
    """While the block runs, the database does not answer: PostgreSQL lets nobody in, SQLite has no attempts."""
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


def _rename(database: Database, old: str, new: str) -> None:
    with database.write() as session:
        session.connection().exec_driver_sql("PRAGMA legacy_alter_table=ON")
        session.connection().exec_driver_sql(f"ALTER TABLE {old} RENAME TO {new}")
