"""The store: the database, the queue and the blobs of one program, and the one place that tells Redis of a commit."""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
import logging
from typing import Self

from sqlalchemy.orm import Session

from store.announcement import Announcement, announcement_of
from store.blobs import Blobs
from store.db.database import Database
from store.queue import Queue, QueueUnavailable
from store.rows import jobs
from store.settings import Settings

logger = logging.getLogger(__name__)


class Store:
    """What commands and queries work with. Any number of threads share it."""

    def __init__(self, database: Database, queue: Queue, blobs: Blobs) -> None:
        self.database = database
        self.queue = queue
        self.blobs = blobs
        self._tells = True

    @classmethod
    def of(cls, settings: Settings, *, program: str, pool: int = 4) -> Self:
        """Connects to nothing yet. `program` and `pool` as in `Database`. Raises ConfigError."""
        database = Database(settings.database, program=program, pool=pool)
        return cls(database, Queue(settings.redis), Blobs(settings.blobs))

    def read(self) -> AbstractContextManager[Session]:
        """One consistent look. Raises Unavailable."""
        return self.database.read()

    @contextmanager
    def write(self, purpose: str) -> Generator[Session]:
        """One transaction, as in `Database.write`. Once it is committed, Redis is told what it has changed.

        Raises Unavailable where the database does not answer, and never for Redis.
        """
        with self.database.write(purpose) as session:
            yield session
        self._tell(announcement_of(session))

    def wake_workers(self) -> None:
        """Wakes every worker. Where Redis does not answer, they look by themselves."""
        self._tell(Announcement(wakes_workers=True))

    def rebuild_queue(self) -> bool:
        """Makes the queue in Redis what the rows say. True if it differed; False, too, where Redis does not answer.

        Raises Unavailable where the database does not answer.
        """
        try:
            return self.queue.rebuild(self._queued, count=self._count)
        except QueueUnavailable as error:
            logger.warning("%s; the queue is rebuilt later", error.message)
            return False

    def close(self) -> None:
        self.queue.close()
        self.database.close()

    def _tell(self, told: Announcement) -> None:
        if not told:
            return
        try:
            self.queue.announce(told)
            self._tells = True
        except QueueUnavailable as error:
            if self._tells:
                jobs_told = ", ".join(sorted(told.changed)) or "a wish to a worker"
                logger.warning("%s is stored; workers and watchers look by themselves: %s", jobs_told, error.message)
            self._tells = False

    def _queued(self) -> list[tuple[str, int]]:
        with self.read() as session:
            return jobs.queued(session)

    def _count(self) -> int:
        with self.read() as session:
            return jobs.count_queued(session)
