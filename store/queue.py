"""The queue in Redis: a hint of what waits, and the bell that wakes the workers. SQL is the truth."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
import time
from typing import Any

from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry

from store.announcement import Announcement
from store.changes import CHANNEL
from torchyard.contract.errors import ConfigError, Unavailable
from torchyard.contract.failpoints import failpoint

_QUEUE = "torchyard:queue"
_BELL = "torchyard:bell"
_LONG_S, _QUIET_S = 0.5, 5.0
_SHORT = 1000
"""Jobs of a queue that is compared with the rows one by one."""


class QueueUnavailable(Unavailable):
    """Redis does not answer. SQL is the truth, so whoever can goes on without it."""


class Queue:
    """A sorted set of job ids: the highest priority first, then the order of submission.

    A hint for whoever asks Redis what waits, older workers among them: today's read the rows.
    """

    def __init__(self, url: str) -> None:
        """Connects to nothing yet. Raises ConfigError."""
        self._redis = _client(url)
        self._quiet_until = 0.0

    def announce(self, announcement: Announcement) -> None:
        """Called after a commit: puts each job where it belongs in the queue, tells who watches one, wakes the workers.

        Raises QueueUnavailable.
        """
        queued = {job_id: -priority for job_id, priority in announcement.priorities.items() if priority is not None}
        gone = [job_id for job_id, priority in announcement.priorities.items() if priority is None]
        with self._pausing_when_slow("announce"), self._redis.pipeline(transaction=False) as pipeline:
            if queued:
                pipeline.zadd(_QUEUE, queued)
            if gone:
                pipeline.zrem(_QUEUE, *gone)
            if announcement.wakes_workers:
                pipeline.publish(_BELL, "")
            for job_id in announcement.changed:
                pipeline.publish(CHANNEL, job_id)
            pipeline.execute()

    def waiting(self) -> list[str]:
        """Ids in the order in which they are to start. Raises QueueUnavailable."""
        with _translated():
            return [str(item) for item in self._redis.zrange(_QUEUE, 0, -1)]

    def rebuild(self, queued: Callable[[], list[tuple[str, int]]], *, count: Callable[[], int] | None = None) -> bool:
        """Makes the queue hold what `queued` reads of the rows: `(id, priority)` each. True if it differed.

        Of a long queue only the length is compared, where `count` tells how many rows there are: workers start jobs by
        the rows, and to compare each would be most of what an idle worker does. Raises QueueUnavailable, and what
        `queued` and `count` raise.
        """
        if count is not None and _SHORT < self._length() == count():
            return False
        with _translated():
            found = {str(item): score for item, score in self._redis.zrange(_QUEUE, 0, -1, withscores=True)}
        # The rows come second: an id that is pushed in between is not among `found`, and so is not taken away.
        wanted = {job_id: float(-priority) for job_id, priority in queued()}
        missing = {job_id: score for job_id, score in wanted.items() if found.get(job_id) != score}
        extra = [job_id for job_id in found if job_id not in wanted]
        with _translated("rebuild"):
            if missing:
                self._redis.zadd(_QUEUE, missing)
            if extra:
                self._redis.zrem(_QUEUE, *extra)
        return bool(missing or extra)

    def _length(self) -> int:
        with _translated():
            return int(self._redis.zcard(_QUEUE))

    def ping(self) -> None:
        """Raises QueueUnavailable."""
        with _translated():
            self._redis.ping()

    def info(self) -> dict[str, Any]:
        """What the server says of itself. Raises QueueUnavailable."""
        with _translated():
            return self._redis.info()

    def listener(self) -> "WakeupListener":
        return WakeupListener(self._redis)

    def close(self) -> None:
        """A thread that still talks to Redis keeps its connection: taken away, it fails with whatever comes first."""
        self._redis.connection_pool.disconnect(inuse_connections=False)

    @contextmanager
    def _pausing_when_slow(self, what: str) -> Generator[None]:
        """A Redis that hangs would hold up whoever commits: it is then left alone for some seconds."""
        began = time.monotonic()
        if began < self._quiet_until:
            raise QueueUnavailable("redis did not answer a moment ago")
        try:
            with _translated(what):
                yield
        except QueueUnavailable:
            now = time.monotonic()
            if now - began > _LONG_S:
                self._quiet_until = now + _QUIET_S
            raise


class WakeupListener:
    """One listener for the bell, for one thread."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._subscription = redis.pubsub(ignore_subscribe_messages=True)

    def wait(self, timeout: float) -> bool:
        """True when the bell rang within `timeout` seconds. Raises QueueUnavailable, at once."""
        with _translated():
            if not self._subscription.subscribed:
                self._subscription.subscribe(_BELL)
            rang = self._subscription.get_message(timeout=timeout) is not None
            while rang and self._subscription.get_message() is not None:
                pass  # one answer for all that rang meanwhile
            return rang

    def close(self) -> None:
        self._subscription.close()


def _client(url: str) -> Redis:
    try:
        # No retries: who calls can always read the rows instead.
        return Redis.from_url(
            url, socket_timeout=1, socket_connect_timeout=1, decode_responses=True, retry=Retry(NoBackoff(), 0)
        )
    except ValueError:  # which may quote a part of the password
        raise ConfigError(
            "the address of Redis cannot be used: expected redis://:password@host:6379/0, rediss://… for TLS,"
            " or unix:///path/to/redis.sock"
        ) from None


@contextmanager
def _translated(what: str = "look") -> Generator[None]:
    """Around one word with Redis; `what` is one of `PUSHES` in contract/failpoints.py, or a read."""
    try:
        failpoint(f"queue.{what}.before")
        yield
        failpoint(f"queue.{what}.after")
    except (RedisError, OSError) as error:
        raise QueueUnavailable(f"redis does not answer: {error}") from error
