"""Keeps all blobs from being removed, as long as somebody copies them."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
import time

from sqlalchemy import delete, insert, update

from store.db.database import Database, in_us, now_us
from store.tables import BlobHold
from torchyard.contract.errors import Conflict

_HOLD = timedelta(minutes=10)
_RENEWED_S = 60.0


@contextmanager
def all_held(database: Database) -> Generator[Callable[[], None]]:
    """Has no blob be removed in the block. Call what it yields again and again, at least once in some minutes.

    Raises Conflict in the block or at its end if it was not called for too long, and Unavailable.
    """
    with database.write("collect") as session:
        new = insert(BlobHold).values(held_until=now_us() + in_us(_HOLD)).returning(BlobHold.id)
        number = session.scalars(new).one()
    renewed_at = time.monotonic()

    def go_on() -> None:
        nonlocal renewed_at
        if time.monotonic() >= renewed_at + _RENEWED_S:
            _renew(database, number)
            renewed_at = time.monotonic()

    yield go_on
    _renew(database, number)
    with database.write("collect") as session:
        session.execute(delete(BlobHold).where(BlobHold.id == number))


def _renew(database: Database, number: int) -> None:
    mine = (BlobHold.id == number, BlobHold.held_until > now_us())
    renewed = update(BlobHold).where(*mine).values(held_until=now_us() + in_us(_HOLD)).returning(BlobHold.id)
    with database.write("collect") as session:
        if session.execute(renewed).first() is None:
            raise Conflict("the copy of the blobs stood still for too long, and some may be removed: start again")
