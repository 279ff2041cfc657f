"""Runs an action beside a process that a failpoint has stopped, until it waits for a lock of that process."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
import sqlite3
import sys
import threading
from typing import Any

from sqlalchemy import text

from store.db.database import Database
from tests.failpoints.armed import DEADLINE_S, until

_BEGINS = "_begin_sqlite"
"""The function of `store.db.engine` in which a writer waits for SQLite's lock."""


@dataclass(frozen=True)
class Second:
    """`waits`: it needs what the stopped process holds. Else it has ended."""

    waits: bool


@contextmanager
def beside(database: Database, action: Callable[..., object], *arguments: Any) -> Generator[Second]:
    """Runs the action in a thread; the block begins when that waits for a lock or has ended, and ends after it."""
    thread = threading.Thread(target=action, args=arguments)
    thread.start()
    until(lambda: not thread.is_alive() or _waits(database, thread), "the second one waits or has ended")
    yield Second(thread.is_alive())
    thread.join(DEADLINE_S)
    assert not thread.is_alive(), "the second one does not end"


def on_sqlite(database: Database) -> bool:
    return database.engine.dialect.name == "sqlite"


def _waits(database: Database, thread: threading.Thread) -> bool:
    if on_sqlite(database):
        return _is_locked(str(database.engine.url.database)) and _begins(thread)
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with database.read() as session:
        return bool(session.execute(waiting).scalar())


def _begins(thread: threading.Thread) -> bool:
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        if frame.f_code.co_name == _BEGINS:
            return True
        frame = frame.f_back
    return False


def _is_locked(file: str) -> bool:
    connection = sqlite3.connect(file, timeout=0, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return True
    finally:
        connection.close()
    return False
