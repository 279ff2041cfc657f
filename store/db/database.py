"""The SQL database: connections, transactions, and its clock."""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
import json
import math
import re
import threading
from typing import Any, Protocol

from sqlalchemy import JSON, BigInteger, Engine, Float, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Session
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator

from store import interruption
from store.db import engine
from torchyard.contract.errors import Unavailable
from torchyard.contract.wire.codec import json_number
from torchyard.contract.wire.text import storable
from torchyard.host.failpoints import failpoint

_TEMPORARY = {"42P01", "42703", "25006"}
"""PostgreSQL's codes for a missing table, a missing column, and a read-only server, whose disk is full or which is a
standby being promoted."""
_UNCLEAN = re.compile(r"\\u(0000|d[89a-f])|[0-9]{19}|NaN|Infinity")
"""Matches in ASCII JSON an escaped NUL or surrogate, also of valid pairs, and each number that no database may take."""
_LEAST, _MOST = -(2**63), 2**63 - 1


def now_us() -> FunctionElement[int]:
    """Returns the database's clock, in microseconds since the epoch. Only this clock decides about leases."""
    return _Now()


class _Now(FunctionElement[int]):
    inherit_cache = True
    type = BigInteger()


@compiles(_Now, "sqlite")
def _now_sqlite(element: _Now, compiler: SQLCompiler, **options: Any) -> str:
    # SQLite's clock has milliseconds; rounding removes the error of the Julian day's fraction.
    return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000"


@compiles(_Now, "postgresql")
def _now_postgresql(element: _Now, compiler: SQLCompiler, **options: Any) -> str:
    return "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)"


def in_us(duration: timedelta) -> int:
    """Returns the duration in microseconds, the database's unit of time."""
    return duration // timedelta(microseconds=1)


class Float64(TypeDecorator[float]):
    """A float that may be NaN. SQLite cannot store NaN, so both databases store NULL for it."""

    impl = Float(53)
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:
        return None if value is None or math.isnan(value) else value

    def process_result_value(self, value: float | None, dialect: Dialect) -> float:
        return math.nan if value is None else value


class CleanText(TypeDecorator[str]):
    """Text from a job. NULs and lone surrogates, which PostgreSQL refuses, are stored as U+FFFD."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else _clean(value)


class Document(TypeDecorator[Any]):
    """JSON whose texts and keys are cleaned as in CleanText, and whose whole numbers are cut to 64 bits."""

    impl = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        # Nearly every document is clean, and searching its JSON is cheaper than walking through it.
        return value if _UNCLEAN.search(json.dumps(value)) is None else _clean(value)


def document(value: Any) -> str:
    """Returns the JSON that a column of type Document stores, for a statement that is executed as it is."""
    return cleaned(json.dumps(value))


def cleaned(written: str) -> str:
    """Returns JSON as a column of type Document stores it."""
    return written if _UNCLEAN.search(written) is None else json.dumps(_clean(json.loads(written)))


class Snapshots(Protocol):
    """What opens read transactions: a database, or the store that it belongs to. Every query is given one."""

    def read(self) -> AbstractContextManager[Session]:
        """Opens a read transaction on one snapshot. Raises Unavailable."""
        ...


class Database:
    """A pool of connections. Every failure to reach the database raises `Unavailable`.

    Temporary errors do, too: a lock or a statement that took too long, a deadlock, tables that are not migrated yet, a
    read-only server. Nothing is retried here, because only the caller knows whether its block may run twice.
    """

    def __init__(
        self, url: str, *, program: str = "torchyard", pool: int = 4, most: int = engine.MOST_CONNECTIONS
    ) -> None:
        """Does not connect yet. The other arguments are as in engine.create. Raises ConfigError."""
        self.engine = engine.create(url, program=program, pool=pool, most=most)
        self._writing = self.engine.execution_options(**{engine.WRITES: True})
        self._reading = _snapshots(self.engine)
        self._writer = threading.Lock() if self.engine.dialect.name == "sqlite" else None

    @contextmanager
    def read(self) -> Generator[Session]:
        """Opens a read transaction on one snapshot. Raises Unavailable."""
        with (
            translated(),
            Session(self._reading, expire_on_commit=False) as session,
            interruption.watched(session),
        ):
            yield session

    @contextmanager
    def write(self, purpose: str = "other") -> Generator[Session]:
        """Opens a transaction: committed at the end of the block, rolled back by any exception. Raises Unavailable.

        It locks rows in one order, as two transactions that wait for each other's rows would deadlock: a worker, then
        attempts, jobs and users, then rows of other tables; several rows of one table by their keys.
        `purpose` is one of `torchyard.host.failpoints.COMMITS`.
        """
        # The connection is committed, not the session: what uses no rows as objects does not pay for it.
        with self._turn(), translated(), self._writing.begin() as connection:
            with Session(connection, expire_on_commit=False, join_transaction_mode="rollback_only") as session:
                yield session
                session.flush()
            failpoint(f"store.{purpose}.before")
        failpoint(f"store.{purpose}.after")

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def _turn(self) -> Generator[None]:
        # SQLite has one writer at a time, and a waiting one polls at growing intervals: under load some would wait for
        # seconds. So the threads of this process take turns here, before they have a connection.
        if self._writer is None:
            yield
            return
        if not self._writer.acquire(timeout=engine.SQLITE_BUSY_S):
            raise Unavailable("the database does not answer: other writes take too long")
        try:
            yield
        finally:
            self._writer.release()


@contextmanager
def translated() -> Generator[None]:
    """Raises Unavailable in place of what says that the database does not answer now."""
    try:
        yield
    except PoolTimeout as error:
        raise Unavailable(f"the database does not answer: {error}") from error
    except DBAPIError as error:
        if not _is_temporary(error):
            raise
        raise Unavailable(f"the database does not answer: {' '.join(str(error.orig).split())}") from error


def _snapshots(made: Engine) -> Engine:
    # SQLite's transactions always read one snapshot; PostgreSQL's read the newest commits at each statement.
    if made.dialect.name != "postgresql":
        return made
    return made.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def _is_temporary(error: DBAPIError) -> bool:
    if isinstance(error, (OperationalError, InterfaceError)) or error.connection_invalidated:
        return True
    return getattr(error.orig, "sqlstate", None) in _TEMPORARY


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, float):
        return json_number(value)
    if isinstance(value, int):  # SQLite has no others: it would answer Infinity, which is no JSON
        return max(_LEAST, min(value, _MOST))
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return value
