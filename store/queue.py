"""The queue in Redis: a hint of what waits, and the bell that wakes the workers. SQL is the truth."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
import logging
import time
from typing import Any

from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry

from store.changes import CHANNEL
from torchyard.errors import ConfigError, Unavailable
from torchyard.failpoints import failpoint

_QUEUE = "torchyard:queue"
_BELL = "torchyard:bell"
_LONG_S, _QUIET_S = 0.5, 5.0

logger = logging.getLogger(__name__)


class Queue:
    """A sorted set of job ids: the highest priority first, then the order of submission."""

    def __init__(self, url: str) -> None:
        """Connects to nothing yet. Raises ConfigError."""
        self._redis = _client(url)
        self._quiet_until = 0.0
        self._announces = True

    def push(self, job_id: str, *, priority: int) -> None:
        """Called after the job's commit. Raises Unavailable."""
        with _translated("push"):
            self._redis.zadd(_QUEUE, {job_id: -priority})

    def remove(self, job_id: str) -> None:
        """Called after the commit that took the job out of `queued`. Raises Unavailable."""
        with _translated("remove"):
            self._redis.zrem(_QUEUE, job_id)

    def tell(self, job_id: str, *, priority: int | None) -> None:
        """Called after a commit that changed the job: puts it where it belongs in the queue, wakes every worker.

        `priority` is that of a queued job; None takes the job away. Raises Unavailable.
        """
        with self._told("tell"), self._redis.pipeline(transaction=False) as pipeline:
            if priority is None:
                pipeline.zrem(_QUEUE, job_id)
            else:
                pipeline.zadd(_QUEUE, {job_id: -priority})
            pipeline.publish(_BELL, "")
            pipeline.publish(CHANNEL, job_id)
            pipeline.execute()

    def announce(self, job_id: str) -> None:
        """Tells who watches the job that it has changed. Where Redis does not answer, they look by themselves."""
        try:
            with self._told("announce"):
                self._redis.publish(CHANNEL, job_id)
            self._announces = True
        except Unavailable as error:
            if self._announces:
                logger.warning("%s; who watches a job looks by itself meanwhile", error.message)
            self._announces = False

    def waiting(self) -> list[str]:
        """Ids in the order in which they are to start. Raises Unavailable."""
        with _translated():
            return [str(item) for item in self._redis.zrange(_QUEUE, 0, -1)]

    def rebuild(self, queued: Callable[[], list[tuple[str, int]]]) -> bool:
        """Makes the queue hold what `queued` reads of the rows: `(id, priority)` each. True if it differed.

        Raises Unavailable.
        """
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

    def ring(self) -> None:
        """Wakes every worker: a job was queued, or somebody asked for something. Raises Unavailable."""
        with _translated("ring"):
            self._redis.publish(_BELL, "")

    def ping(self) -> None:
        """Raises Unavailable."""
        with _translated():
            self._redis.ping()

    def info(self) -> dict[str, Any]:
        """What the server says of itself. Raises Unavailable."""
        with _translated():
            return self._redis.info()

    def bell(self) -> "Bell":
        return Bell(self._redis)

    def close(self) -> None:
        """A thread that still talks to Redis keeps its connection: taken away, it fails with whatever comes first."""
        self._redis.connection_pool.disconnect(inuse_connections=False)

    @contextmanager
    def _told(self, what: str) -> Generator[None]:
        """A Redis that hangs would hold up whoever commits: it is then left alone for some seconds."""
        began = time.monotonic()
        if began < self._quiet_until:
            raise Unavailable("redis did not answer a moment ago")
        try:
            with _translated(what):
                yield
        except Unavailable:
            now = time.monotonic()
            if now - began > _LONG_S:
                self._quiet_until = now + _QUIET_S
            raise


class Bell:
    """One listener for the bell, for one thread."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._subscription = redis.pubsub(ignore_subscribe_messages=True)

    def wait(self, timeout: float) -> bool:
        """True when the bell rang within `timeout` seconds. Raises Unavailable, at once."""
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
    """Around one word with Redis; `what` is one of `torchyard.failpoints.PUSHES` where it is more than a look."""
    try:
        failpoint(f"queue.{what}.before")
        yield
        failpoint(f"queue.{what}.after")
    except (RedisError, OSError) as error:
        raise Unavailable(f"redis does not answer: {error}") from error
