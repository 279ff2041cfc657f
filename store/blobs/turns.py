"""The order between transactions that name blobs and those that choose which are removed.

On SQLite one transaction writes at a time. On PostgreSQL those that name blobs share a lock, which is taken alone to
choose: so whoever chooses sees all rows that were named before, and who names a blob sees that it was chosen.
"""

from sqlalchemy import text
from sqlalchemy.orm import Session

_LOCK = 7_146_030_065
"""The number of PostgreSQL's advisory lock."""


def share_turn(session: Session) -> None:
    """Waits while another transaction chooses. Call it before any row is locked that this one may have locked."""
    _lock(session, "pg_advisory_xact_lock_shared")


def take_turn(session: Session) -> None:
    """Waits for the transactions that name blobs. Call it before any row is locked."""
    _lock(session, "pg_advisory_xact_lock")


def _lock(session: Session, function: str) -> None:
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text(f"SELECT {function}({_LOCK})"))
