"""Holds up, counts and refuses the write transactions of a service."""

from collections.abc import Generator
from contextlib import contextmanager
import threading
from typing import Any

from sqlalchemy import Connection, Engine, NullPool, create_engine, event
from sqlalchemy.exc import OperationalError

from store.db.engine import WRITES
from tests.api.service import ApiFixture

_MOST_PAGES = 4294967294
_LOCKS = {
    "sqlite": (("BEGIN IMMEDIATE",), "PRAGMA busy_timeout = 10"),
    "postgresql": (("BEGIN", "LOCK TABLE jobs IN EXCLUSIVE MODE"), "SET lock_timeout = '50ms'"),
}
"""By kind of database: how another program locks the jobs, and how one waits for that only for a moment."""


class Writes:
    """The write transactions of a service: how many committed, and what becomes of them."""

    def __init__(self) -> None:
        self.commits = 0
        self.refuse = False
        """Whether the database is away when a commit begins."""
        self.refuse_after: int | None = None
        """The database is away after so many commits."""
        self.go = threading.Event()
        """Until it is set, transactions begin and wait."""
        self.go.set()

    def begin(self, connection: Connection) -> None:
        if connection.get_execution_options().get(WRITES):
            self.go.wait()

    def commit(self, connection: Connection) -> None:
        if connection.get_execution_options().get(WRITES):
            self.commits += 1
            if self.refuse or (self.refuse_after is not None and self.commits > self.refuse_after):
                raise OperationalError("COMMIT", None, ConnectionError("the server is away"))


@contextmanager
def writes(service: ApiFixture) -> Generator[Writes]:
    engine, found = service.app.state.services.store.database.engine, Writes()
    event.listen(engine, "begin", found.begin)
    event.listen(engine, "commit", found.commit)
    try:
        yield found
    finally:
        found.go.set()
        event.remove(engine, "begin", found.begin)
        event.remove(engine, "commit", found.commit)


@contextmanager
def full_after(service: ApiFixture, commits: int) -> Generator[None]:
    """Has the disk of the database be full after so many commits."""
    engine = service.app.state.services.store.database.engine
    if engine.dialect.name == "postgresql":  # as the server says it; another disk for it would need root
        with writes(service) as seen, _refusing(engine, "53100", seen, commits):
            yield
        return
    with writes(service) as seen:

        def limit(connection: Connection) -> None:
            most = 1 if seen.commits >= commits else _MOST_PAGES
            connection.exec_driver_sql(f"PRAGMA max_page_count = {most}")

        event.listen(engine, "begin", limit)
        try:
            yield
        finally:
            event.remove(engine, "begin", limit)
            engine.dispose()


@contextmanager
def locked_after(service: ApiFixture, commits: int) -> Generator[Writes]:
    """Has another program lock the jobs after so many commits. The service waits for it only for a moment."""
    service.app.state.services.store.service()  # then the service knows its id, and its next write reads nothing else
    engine = service.app.state.services.store.database.engine
    begin, impatient = _LOCKS[engine.dialect.name]
    other = create_engine(engine.url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with writes(service) as seen, other.connect() as holder:
        locked = threading.Event()

        def be_impatient(connection: Any, *_: object) -> None:
            connection.execute(impatient)

        def lock(*_: object) -> None:
            if seen.commits >= commits and not locked.is_set():
                locked.set()
                for statement in begin:
                    holder.exec_driver_sql(statement)

        event.listen(engine, "checkout", be_impatient)
        event.listen(engine, "checkin", lock)
        try:
            yield seen
        finally:
            event.remove(engine, "checkout", be_impatient)
            event.remove(engine, "checkin", lock)
            if locked.is_set():
                holder.exec_driver_sql("ROLLBACK")
            engine.dispose()


@contextmanager
def _refusing(engine: Engine, sqlstate: str, seen: Writes, commits: int) -> Generator[None]:
    """Has PostgreSQL refuse new jobs with this code after so many commits."""

    def refuse(connection: Connection) -> None:
        if connection.get_execution_options().get(WRITES) and seen.commits >= commits:
            connection.exec_driver_sql(
                "CREATE FUNCTION pg_temp.refuse() RETURNS trigger LANGUAGE plpgsql AS $$"
                f" BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '{sqlstate}'; END $$"
            )
            connection.exec_driver_sql(
                "CREATE TRIGGER refuse BEFORE INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION pg_temp.refuse()"
            )

    event.listen(engine, "begin", refuse)
    try:
        yield
    finally:
        event.remove(engine, "begin", refuse)
