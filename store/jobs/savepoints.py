"""Several changes in one transaction, of which each may fail by itself."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError
from sqlalchemy.orm import Session

from store.announcement import apart
from store.db.database import translated

T = TypeVar("T")


def attempt(session: Session, change: Callable[[], T]) -> T | Exception:
    """Makes the change. If it raises, undoes it and its announcement, and returns the exception.

    The change may not use the unit of work, which knows nothing of savepoints here. Raises what ends the whole
    transaction.
    """
    try:
        with translated(), _savepoint(session):
            return change()
    except _TransactionEnded as ended:
        raise ended.error from None
    except Exception as error:  # noqa: BLE001 - it is the answer to this change alone
        return error


class _TransactionEnded(Exception):
    """An error of the database after which nothing of the transaction is left."""

    def __init__(self, error: DBAPIError) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def _savepoint(session: Session) -> Generator[None]:
    try:
        with apart(session), session.connection().begin_nested():
            yield
    except DBAPIError as error:
        if error.connection_invalidated or _rolls_back(session, error):
            raise _TransactionEnded(error) from error
        raise


def _rolls_back(session: Session, error: DBAPIError) -> bool:
    # SQLite may roll back all on a full disk, and a savepoint after that would be a transaction of its own.
    return session.get_bind().dialect.name == "sqlite" and not isinstance(error, DataError | IntegrityError)
