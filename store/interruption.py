"""Ends the statement that another thread executes, when nobody waits for its result any more."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
import sqlite3
import threading
from typing import Any

from sqlalchemy.orm import Session

from torchyard.contract.errors import Unavailable

_CANCEL_S = 5.0
"""Longest wait for PostgreSQL to end a statement."""


class Interruption:
    """Ends the reads of the contexts in which it is set. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: set[Any] = set()
        """Those of the driver."""
        self._interrupted = False

    @contextmanager
    def during(self) -> Generator[None]:
        """Lets `interrupt` end the reads of the block, and of what runs in a copy of its context."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def interrupt(self) -> None:
        """Makes the statements that are executed now fail, and later reads too. Call it in a thread: it may wait."""
        with self._lock:
            self._interrupted = True
            for connection in self._connections:
                _cancel(connection)

    @contextmanager
    def watch(self, session: Session) -> Generator[None]:
        """Lets `interrupt` end the statements of the session in the block. Raises Unavailable if it was called."""
        connection = session.connection().connection.dbapi_connection
        with self._lock:
            if self._interrupted:
                raise Unavailable("the caller has left")
            self._connections.add(connection)
        try:
            yield
        finally:
            with self._lock:  # from here on the connection may be another read's
                self._connections.discard(connection)


_current: ContextVar[Interruption | None] = ContextVar("interruption", default=None)


@contextmanager
def watched(session: Session) -> Generator[None]:
    """Lets the interruption of this context, if there is one, end the statements of the block. Raises Unavailable."""
    interruption = _current.get()
    if interruption is None:
        yield
        return
    with interruption.watch(session):
        yield


def _cancel(connection: Any) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.interrupt()
        return
    from psycopg import Connection

    assert isinstance(connection, Connection)
    connection.cancel_safe(timeout=_CANCEL_S)
