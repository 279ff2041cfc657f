"""The queue in Redis: a hint of which jobs wait, and the channel that wakes the workers. SQL is the truth."""

from collections.abc import Callable, Generator, Iterable
from contextlib import closing, contextmanager
import time
from typing import Any

from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry

from store import announcement, redis_names
from store.announcement import Announcement
from torchyard.contract.errors import ConfigError, Unavailable
from torchyard.contract.views.telemetry import LiveLine
from torchyard.host.failpoints import failpoint

_SLOW_S = 0.5
"""An announcement that fails after this long pauses further ones."""
_PAUSE_S = 5.0
_MAX_COMPARED = 1000
"""Of a longer queue only the length is compared with the rows."""


class QueueUnavailable(Unavailable):
    """Redis does not answer. Callers that can go on without it do, because SQL is the truth."""


class Queue:
    """A sorted set of job ids: the highest priority first, then the order of submission.

    It is a hint for who reads Redis. Workers read the rows.
    """

    def __init__(self, url: str, *, service: Callable[[], str]) -> None:
        """Does not connect yet. `service` returns the service's id, and what it raises is passed on.

        Raises ConfigError.
        """
        self._redis = _client(url)
        self._service = service
        self._paused_until = 0.0

    def announce(self, new: Announcement) -> None:
        """Updates the queue, notifies watchers of jobs and wakes the workers. Call it after the commit.

        Raises QueueUnavailable.
        """
        queued = {job_id: -priority for job_id, priority in new.priorities.items() if priority is not None}
        removed = [job_id for job_id, priority in new.priorities.items() if priority is None]
        service = self._service()
        with self._pausing_when_slow("announce"), self._redis.pipeline(transaction=False) as pipeline:
            if queued:
                pipeline.zadd(redis_names.queue(service), queued)
            if removed:
                pipeline.zrem(redis_names.queue(service), *removed)
            if new.wakes_workers:
                pipeline.publish(redis_names.wakeups(service), "")
            for job_id in new.changed:
                pipeline.publish(redis_names.changes(service), job_id)
            pipeline.execute()

    def show(self, lines: Iterable[LiveLine]) -> None:
        """Sends lines that have no end so far to who watches. Raises QueueUnavailable."""
        channel = redis_names.changes(self._service())
        with self._pausing_when_slow("announce"), self._redis.pipeline(transaction=False) as pipeline:
            for line in lines:
                pipeline.publish(channel, announcement.live(line))
            pipeline.execute()

    def waiting(self) -> list[str]:
        """Returns the queued ids in the order in which they start. Raises QueueUnavailable."""
        key = redis_names.queue(self._service())
        with _translated():
            return [str(item) for item in self._redis.zrange(key, 0, -1)]

    def rebuild(self, queued: Callable[[], list[tuple[str, int]]], *, count: Callable[[], int] | None = None) -> bool:
        """Makes the queue equal to the rows: `queued` reads `(id, priority)` of each. Returns whether it differed.

        If `count` is given, only the length of a long queue is compared with the number of rows: workers start jobs by
        the rows, and comparing every id would be most of an idle worker's load. Raises QueueUnavailable, and what
        `queued` and `count` raise.
        """
        if count is not None and _MAX_COMPARED < self._length() == count():
            return False
        key = redis_names.queue(self._service())
        with _translated():
            found = {str(item): score for item, score in self._redis.zrange(key, 0, -1, withscores=True)}
        # The rows are read second: an id that is pushed in between is not in `found`, and so is not removed.
        wanted = {job_id: float(-priority) for job_id, priority in queued()}
        missing = {job_id: score for job_id, score in wanted.items() if found.get(job_id) != score}
        extra = [job_id for job_id in found if job_id not in wanted]
        with _translated("rebuild"):
            if missing:
                self._redis.zadd(key, missing)
            if extra:
                self._redis.zrem(key, *extra)
        return bool(missing or extra)

    def _length(self) -> int:
        key = redis_names.queue(self._service())
        with _translated():
            return int(self._redis.zcard(key))

    def ping(self) -> None:
        """Checks that Redis answers. Raises QueueUnavailable."""
        with _translated():
            self._redis.ping()

    def listener(self) -> "WakeupListener":
        """Returns a listener for wake-ups; it subscribes at its first wait."""
        return WakeupListener(self._redis, service=self._service)

    def close(self) -> None:
        """Closes idle connections. A thread that uses one at this moment keeps it: closing it would raise there."""
        self._redis.connection_pool.disconnect(inuse_connections=False)

    @contextmanager
    def _pausing_when_slow(self, what: str) -> Generator[None]:
        """Skips announcements for some seconds after a slow failure, so that a hung Redis does not delay commits."""
        began = time.monotonic()
        if began < self._paused_until:
            raise QueueUnavailable("redis did not answer a moment ago")
        try:
            with _translated(what):
                yield
        except QueueUnavailable:
            now = time.monotonic()
            if now - began > _SLOW_S:
                self._paused_until = now + _PAUSE_S
            raise


class WakeupListener:
    """Waits for wake-ups of the workers. For one thread."""

    def __init__(self, redis: Redis, *, service: Callable[[], str]) -> None:
        self._redis = redis
        self._service = service
        self._subscription = redis.pubsub(ignore_subscribe_messages=True)

    def wait(self, timeout: float) -> bool:
        """Returns whether a wake-up came within `timeout` seconds. Raises QueueUnavailable at once."""
        channel = redis_names.wakeups(self._service())
        with _translated():
            if not self._subscription.subscribed:
                self._subscription.subscribe(channel)
            woken = self._subscription.get_message(timeout=timeout) is not None
            while woken and self._subscription.get_message() is not None:
                pass  # wake-ups that came together count once
            return woken

    def close(self) -> None:
        self._subscription.close()


def server_info(url: str) -> dict[str, Any]:
    """Connects and returns the server's INFO. Raises ConfigError and QueueUnavailable."""
    with closing(_client(url)) as redis, _translated():
        return redis.info()


def _client(url: str) -> Redis:
    try:
        # No retries: callers can always read the rows instead.
        return Redis.from_url(
            url, socket_timeout=1, socket_connect_timeout=1, decode_responses=True, retry=Retry(NoBackoff(), 0)
        )
    except ValueError:  # which may quote a part of the password
        raise ConfigError(
            "the address of Redis cannot be used: expected redis://:password@host:6379/0, rediss://… for TLS,"
            " or unix:///path/to/redis.sock"
        ) from None


@contextmanager
def _translated(what: str = "read") -> Generator[None]:
    """Translates errors of one exchange with Redis. `what` is one of `PUSHES` in host/failpoints.py, or `read`."""
    try:
        failpoint(f"queue.{what}.before")
        yield
        failpoint(f"queue.{what}.after")
    except (RedisError, OSError) as error:
        raise QueueUnavailable(f"redis does not answer: {error}") from error
