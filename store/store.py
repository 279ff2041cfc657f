"""The store of one program: its database, queue and blobs. Only `Store.write` announces commits to Redis."""

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
import contextlib
from contextlib import contextmanager
import logging
from typing import Self

from sqlalchemy.orm import Session

from store.announcement import Announcement, announcement_of, is_channel
from store.blobs.folder import BlobFolder
from store.db.database import Database
from store.db.engine import MOST_CONNECTIONS
from store.queue import credits
from store.queue.announcing import Queue, QueueUnavailable
from store.queue.credits import CreditCache
from store.queue.line import line
from store.queue.line.sweep import Sweep
from store.queue.line_facts import Bucket
from store.secret_keys import SecretKeys
from store.service_identity import ServiceIdentity
from store.settings import Settings
from torchyard.contract.errors import Unavailable
from torchyard.contract.telemetry.views import LiveLine

logger = logging.getLogger(__name__)

_MOST_NAMED = 5
"""Of what has changed, so many names are logged: a part of a batch has 500 jobs."""


class Store:
    """Opens the transactions of a program, and tells Redis what they changed. Threads may share it."""

    def __init__(
        self,
        database: Database,
        queue: Queue,
        blobs: BlobFolder,
        secret_keys: SecretKeys,
        *,
        service: Callable[[], str],
    ) -> None:
        self.database = database
        self.queue = queue
        self.blobs = blobs
        self.secret_keys = secret_keys
        self.service = service
        """Returns the service's id, and raises what `ServiceIdentity.require` does."""
        self.known_service: Callable[[], str | None] = lambda: None
        """Returns the service's id if this program knows it already. Waits for nothing."""
        self.on_access_change: Callable[[], None] = lambda: None
        """Called after each commit of this program that changes who may do what, before its caller goes on."""
        self._redis_answers = True
        self._credits = CreditCache()
        self._sweep = Sweep(queue.upkeep, database)

    @classmethod
    def of(cls, settings: Settings, *, program: str, pool: int = 4, most: int = MOST_CONNECTIONS) -> Self:
        """Creates the store without connecting. The other arguments are as in `Database`. Raises ConfigError."""
        database = Database(settings.database, program=program, pool=pool, most=most)
        keys = SecretKeys(settings.secret_key.get_secret_value(), settings.secret_key_file)
        blobs = BlobFolder(settings.blobs)
        identity = ServiceIdentity(database, blobs)
        store = cls(database, Queue(settings.redis, service=identity.require), blobs, keys, service=identity.require)
        store.known_service = lambda: identity.known
        return store

    @contextmanager
    def read(self) -> Generator[Session]:
        """Opens a read transaction on one snapshot. Raises Unavailable, and what `service` does."""
        self.service()
        with self.database.read() as session:
            attached = line.attach(session, self.queue.line)
            credits.attach(session, self._credits)
            yield session
        if attached.suspects:
            self._compare(sorted(attached.suspects))

    @contextmanager
    def write(self, purpose: str) -> Generator[Session]:
        """Opens a transaction as `Database.write` does, and announces its changes to Redis after the commit.

        Raises Unavailable if the database does not answer, and never because of Redis; raises what `service` does.
        """
        self.service()
        with self.database.write(purpose) as session:
            line.attach(session, self.queue.line)
            credits.attach(session, self._credits)
            yield session
        announced = announcement_of(session)
        if announced.newcomers:
            announced.credits = self._credits.known(_buckets(announced))
        self._announce(announced)

    def positions(self, announced: Announcement) -> Mapping[str, int]:
        """Returns the positions in the queue of the announced newcomers by id, as far as they are known now."""
        if not announced.newcomers or announced.positions is not None:
            return announced.positions or {}
        with contextlib.suppress(Unavailable), self.read() as session:  # they are committed, whatever happens here
            known = credits.credits(session, _buckets(announced))
            return line.line_of(session).positions(known, announced.newcomers)
        return {}

    def wake_workers(self) -> None:
        """Wakes every worker. If Redis does not answer, they read the queue at their next interval."""
        self._announce(Announcement(wakes_workers=True))

    def show(self, lines: Sequence[LiveLine]) -> None:
        """Sends lines that have no end so far to who watches their jobs now. They are stored nowhere."""
        with contextlib.suppress(QueueUnavailable):  # who sends them sends newer ones soon
            self.queue.show(lines)

    def sweep_line(self) -> bool:
        """Makes the line in Redis equal to the rows. Returns whether it differed; False if Redis does not answer.

        For one thread at a time. Raises Unavailable if the database does not answer.
        """
        try:
            return self._sweep.run()
        except QueueUnavailable as error:
            logger.warning("%s; comparing the queue in Redis later", error.message)
            return False

    def close(self) -> None:
        self.queue.close()
        self.database.close()

    def _announce(self, announcement: Announcement) -> None:
        if not announcement:
            return
        if any(map(is_channel, announcement.changed)):
            self.on_access_change()
        try:
            announcement.positions = self.queue.announce(announcement)
            self._redis_answers = True
        except QueueUnavailable as error:
            if self._redis_answers:
                changed = _named(announcement.changed) or "a request to a worker"
                logger.warning("stored: %s; workers and watchers poll meanwhile: %s", changed, error.message)
            self._redis_answers = False

    def _compare(self, job_ids: Sequence[str]) -> None:
        with contextlib.suppress(Unavailable):  # a sweep finds them, too
            self._sweep.compare(job_ids)


def _buckets(announced: Announcement) -> set[Bucket]:
    return {job.bucket for job in announced.newcomers}


def _named(changed: Collection[str]) -> str:
    first, others = sorted(changed)[:_MOST_NAMED], len(changed) - _MOST_NAMED
    return ", ".join(first) + (f" and {others} more" if others > 0 else "")
