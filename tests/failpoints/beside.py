"""Runs an action beside a process that a failpoint has stopped, until it waits for a lock of that process."""

from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
import sqlite3
import sys
import threading
from types import FrameType
from typing import Any

from sqlalchemy import text

from store.db.database import Database
from tests.failpoints.armed import DEADLINE_S, until

_BEGINS = "_begin_sqlite"
"""The function of `store.db.engine` in which a writer waits for SQLite's lock."""
_POLLS = 20
"""So many polls in a row find a writer in the same call before it is said to wait: it may just have got the lock."""


@dataclass(frozen=True)
class Second:
    """`waits`: it needs what the stopped process holds. Else it has ended."""

    waits: bool


@contextmanager
def beside(database: Database, action: Callable[..., object], *arguments: Any) -> Generator[Second]:
    """Runs the action in a thread; the block begins when that waits for a lock or has ended, and ends after it."""
    thread = threading.Thread(target=action, args=arguments)
    thread.start()
    waits = _waits_for_sqlite(database, thread) if on_sqlite(database) else lambda: _waits_for_postgresql(database)
    until(lambda: not thread.is_alive() or waits(), "the second one waits or has ended")
    yield Second(thread.is_alive())
    thread.join(DEADLINE_S)
    assert not thread.is_alive(), "the second one does not end"


def on_sqlite(database: Database) -> bool:
    return database.engine.dialect.name == "sqlite"


def _waits_for_sqlite(database: Database, thread: threading.Thread) -> Callable[[], bool]:
    file, seen = str(database.engine.url.database), deque[FrameType | None](maxlen=_POLLS)

    def waits() -> bool:
        begins = _begins(thread)
        seen.append(begins if begins is not None and _is_locked(file) else None)
        return len(seen) == _POLLS and begins is not None and all(frame is begins for frame in seen)

    return waits


def _waits_for_postgresql(database: Database) -> bool:
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with database.read() as session:
        return bool(session.execute(waiting).scalar())


def _begins(thread: threading.Thread) -> FrameType | None:
    """Returns the call in which the thread begins to write, if it does."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        if frame.f_code.co_name == _BEGINS:
            return frame
        frame = frame.f_back
    return None


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
