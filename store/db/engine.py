"""Creates engines for SQLite and PostgreSQL: address, pool, and timeouts of each connection."""

from functools import partial
import select
import sqlite3
import time
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.exc import ArgumentError, InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry

from store.db.prepared import Cursor
from torchyard.contract.errors import ConfigError

WRITES = "torchyard_writes"
"""Name of the execution option of engines whose transactions write."""

MOST_CONNECTIONS = 40
"""The most connections of a program, unless it says otherwise."""
SQLITE_BUSY_S = 10
"""Longest wait of a writer for another transaction, in seconds; also the longest delay of a program's exit."""
_USED_AT = "torchyard_used_at"
_TRUSTED_S = 1.0
"""For so long after its last use, a connection is taken for alive if the server has said nothing on it."""
_POSTGRESQL_DRIVER = "postgresql+psycopg"
_DRIVERS = {
    "sqlite": "sqlite",
    "sqlite+pysqlite": "sqlite",
    "postgres": _POSTGRESQL_DRIVER,
    "postgresql": _POSTGRESQL_DRIVER,
    _POSTGRESQL_DRIVER: _POSTGRESQL_DRIVER,
}
_EXPECTED = "expected sqlite:////path/to/file.db or postgresql://user:password@host:5432/name"
_POSTGRESQL_LIMITS_MS = {
    "statement_timeout": 30_000,
    "lock_timeout": 10_000,
    "idle_in_transaction_session_timeout": 30_000,
}
# A server that disappears without closing the connection is noticed within a lease (30 s).
_POSTGRESQL_CONNECTION = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
    "options": " ".join(f"-c {name}={limit}" for name, limit in _POSTGRESQL_LIMITS_MS.items()),
}


def create(address: str, *, program: str, pool: int, most: int) -> Engine:
    """Creates an engine without connecting.

    `program` is its application name in PostgreSQL, `pool` the number of connections that stay open, `most` that of
    all. A further one is waited for. Raises ConfigError, which
    never quotes the address, because it may contain a password.
    """
    url = _parsed(address)
    if url.drivername == "sqlite":
        return _sqlite(url, pool=pool, most=most)
    return _postgresql(url, program=program, pool=pool, most=most)


def _parsed(address: str) -> URL:
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):
        raise ConfigError(f"the database's address is not a URL: {_EXPECTED}") from None
    if url.drivername not in _DRIVERS:
        raise ConfigError(f"databases of type {url.drivername!r} are not supported: {_EXPECTED}")
    if "@" in (url.host or ""):
        raise ConfigError("the database's address has more than one @: write an @ in the password as %40")
    return url.set(drivername=_DRIVERS[url.drivername])


def _sqlite(url: URL, *, pool: int, most: int) -> Engine:
    if url.database in {None, "", ":memory:"}:
        raise ConfigError(f"a SQLite database must be a file, as several programs share it: {_EXPECTED}")
    waits = {"timeout": SQLITE_BUSY_S, "check_same_thread": False}
    engine = create_engine(url, connect_args=waits, pool_size=pool, max_overflow=most - pool)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, record: object) -> None:
    connection.isolation_level = None  # _begin_sqlite begins transactions, not the driver
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that first reads and then writes would fail if another wrote in between.
    writes = connection.get_execution_options().get(WRITES, False)
    begin = "BEGIN IMMEDIATE" if writes else "BEGIN"
    with Cursor(connection, begin) as cursor:
        cursor.execute(begin)


def _postgresql(url: URL, *, program: str, pool: int, most: int) -> Engine:
    from psycopg import ProgrammingError, conninfo

    try:
        conninfo.make_conninfo(**dict.fromkeys(url.query, ""))
    except ProgrammingError as error:
        raise ConfigError(f"the database's address has an {str(error).strip()}") from None
    wanted = {"application_name": program, **_POSTGRESQL_CONNECTION}
    settings = {name: value for name, value in wanted.items() if name not in url.query}
    engine = create_engine(
        url,
        connect_args=settings,
        pool_use_lifo=True,
        pool_size=pool,
        max_overflow=most - pool,
        pool_timeout=10,
    )
    event.listen(engine, "checkin", _note_use)
    event.listen(engine, "checkout", partial(_require_alive, engine.dialect))
    return engine


def _note_use(connection: object, record: ConnectionPoolEntry) -> None:
    record.info[_USED_AT] = time.monotonic()


def _require_alive(dialect: Dialect, connection: Any, record: ConnectionPoolEntry, proxy: object) -> None:
    """Has the pool replace its connections if a restart of the server has closed this one.

    Asking the server each time would make a small transaction take a tenth longer. One that has closed the connection
    has said so, and what it says can be read.
    """
    used_at = record.info.get(_USED_AT)
    if used_at is None:
        return
    if time.monotonic() - used_at < _TRUSTED_S and not _has_something_to_read(connection.fileno()):
        return
    try:
        dialect.do_ping(connection)
    except dialect.loaded_dbapi.Error as error:
        raise InvalidatePoolError("the server closed the connection") from error


def _has_something_to_read(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
