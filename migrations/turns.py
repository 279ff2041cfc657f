"""Locks: one migration at a time changes the tables, and gives up after a while if other programs use them."""

from collections.abc import Generator
from contextlib import contextmanager

from alembic.util import CommandError
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from store.db.database import Database
from store.db.engine import WRITES
from torchyard.contract.errors import Unavailable

LOCK_TIMEOUT_S = 5
_WAIT_S = 120
"""Longest wait for another migration, in seconds."""
_ADVISORY_LOCK = 0x746F7263
"""The number of PostgreSQL's advisory lock that a migration holds."""
_LOCK_NOT_AVAILABLE = "55P03"


@contextmanager
def exclusive_transaction(database: Database) -> Generator[Connection]:
    """Opens one transaction for all revisions. Waits up to two minutes for another migration.

    Raises Unavailable if a lock is not released in time.
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
    """Makes later statements fail that wait longer than `seconds` for a table, because others would queue behind them.

    Only PostgreSQL needs it; on SQLite the transaction has all its locks already.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{seconds}s'")


def check_references(connection: Connection) -> None:
    """Raises CommandError if rows refer to missing rows: SQLite does not check foreign keys while tables change."""
    if connection.dialect.name != "sqlite":
        return
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    if broken:
        tables = ", ".join(sorted({str(row[0]) for row in broken}))
        raise CommandError(f"nothing was changed: {len(broken)} rows of {tables} would refer to missing rows")


@contextmanager
def _sqlite(connection: Connection) -> Generator[None]:
    # Before the transaction, in which SQLite ignores it. With foreign keys on, a table could not be recreated.
    cursor = connection.connection.cursor()
    cursor.execute("PRAGMA foreign_keys=OFF")
    # Nor while triggers of other tables name it, as those that count what jobs have stored do.
    cursor.execute("PRAGMA legacy_alter_table=ON")
    cursor.execute(f"PRAGMA busy_timeout={_WAIT_S * 1000}")
    cursor.close()
    with connection.begin():
        yield


@contextmanager
def _postgresql(connection: Connection) -> Generator[None]:
    with connection.begin():
        for limit in ("statement_timeout", "idle_in_transaction_session_timeout"):
            connection.exec_driver_sql(f"SET LOCAL {limit} = 0")
        limit_lock_waits(connection, seconds=_WAIT_S)
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
        limit_lock_waits(connection)
        yield


def _locked(error: OperationalError) -> bool:
    return getattr(error.orig, "sqlstate", None) == _LOCK_NOT_AVAILABLE or "database is locked" in str(error.orig)
