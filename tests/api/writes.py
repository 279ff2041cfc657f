"""Holds up, counts and refuses the write transactions of a service."""

from collections.abc import Generator
from contextlib import contextmanager
import threading

from sqlalchemy import Connection, event
from sqlalchemy.exc import OperationalError

from store.db.engine import WRITES
from tests.api.service import ApiFixture


class Writes:
    """The write transactions of a service: how many committed, and what becomes of them."""

    def __init__(self) -> None:
        self.commits = 0
        self.refuse = False
        """Whether the database is away when a commit begins."""
        self.refuse_after: int | None = None
        """The database is away after so many commits."""
        self.go = threading.Event()
        """Until it is set, transactions begin and wait."""
        self.go.set()

    def begin(self, connection: Connection) -> None:
        if connection.get_execution_options().get(WRITES):
            self.go.wait()

    def commit(self, connection: Connection) -> None:
        if connection.get_execution_options().get(WRITES):
            self.commits += 1
            if self.refuse or (self.refuse_after is not None and self.commits > self.refuse_after):
                raise OperationalError("COMMIT", None, ConnectionError("the server is away"))


@contextmanager
def writes(service: ApiFixture) -> Generator[Writes]:
    engine, found = service.app.state.services.store.database.engine, Writes()
    event.listen(engine, "begin", found.begin)
    event.listen(engine, "commit", found.commit)
    try:
        yield found
    finally:
        found.go.set()
        event.remove(engine, "begin", found.begin)
        event.remove(engine, "commit", found.commit)
