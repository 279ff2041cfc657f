"""Who may change the tables: one migration at a time, which does not wait for ever for those who use them."""

from collections.abc import Generator
from contextlib import contextmanager

from alembic.util import CommandError
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from store.db.database import Database
from store.db.engine import WRITES
from torchyard.contract.errors import Unavailable

LOCK_TIMEOUT_S = 5
_TURN_S = 120
_TURN = 0x746F7263
"""The number of PostgreSQL's advisory lock that says whose turn it is."""
_LOCK_NOT_AVAILABLE = "55P03"


@contextmanager
def turn(database: Database) -> Generator[Connection]:
    """One transaction over all that a migration does. Waits for another one, two minutes at most.

    Raises Unavailable where a lock is not to be had.
    """
    with database.engine.connect().execution_options(**{WRITES: True}) as connection:
        try:
            if connection.dialect.name == "sqlite":
                with _sqlite(connection):
                    yield connection
            else:
                with _postgresql(connection):
                    yield connection
        except OperationalError as error:
            if not _locked(error):
                raise
            raise Unavailable(
                "other programs use the tables, and nothing was changed: try again, or stop the API and the workers"
                f" first ({' '.join(str(error.orig).split())})"
            ) from error


def limit_lock_waits(connection: Connection, *, seconds: int = LOCK_TIMEOUT_S) -> None:
    """From here on, a statement fails that waits longer for a table: whoever comes behind it would wait as well.

    For PostgreSQL; on SQLite the transaction has all its locks already.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{seconds}s'")


def check_references(connection: Connection) -> None:
    """SQLite keeps no foreign keys while tables change. Raises CommandError where rows refer to what is not there."""
    if connection.dialect.name != "sqlite":
        return
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    if broken:
        tables = ", ".join(sorted({str(row[0]) for row in broken}))
        raise CommandError(f"nothing was changed: {len(broken)} rows of {tables} would refer to what is not there")


@contextmanager
def _sqlite(connection: Connection) -> Generator[None]:
    # Before the transaction, in which SQLite ignores it: with foreign keys, a table could not be made anew.
    cursor = connection.connection.cursor()
    cursor.execute("PRAGMA foreign_keys=OFF")
    cursor.execute(f"PRAGMA busy_timeout={_TURN_S * 1000}")
    cursor.close()
    with connection.begin():
        yield


@contextmanager
def _postgresql(connection: Connection) -> Generator[None]:
    with connection.begin():
        for limit in ("statement_timeout", "idle_in_transaction_session_timeout"):
            connection.exec_driver_sql(f"SET LOCAL {limit} = 0")
        limit_lock_waits(connection, seconds=_TURN_S)
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_TURN})")
        limit_lock_waits(connection)
        yield


def _locked(error: OperationalError) -> bool:
    return getattr(error.orig, "sqlstate", None) == _LOCK_NOT_AVAILABLE or "database is locked" in str(error.orig)
