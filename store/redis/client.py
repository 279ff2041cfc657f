"""Connections to Redis: their limits of time, and what their errors mean to callers."""

from collections.abc import Generator
from contextlib import contextmanager
import time

from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.driver_info import DriverInfo
from redis.exceptions import NoPermissionError
from redis.retry import Retry

from torchyard.contract.errors import ConfigError, Unavailable
from torchyard.host.failpoints import failpoint

QUICK_S = 0.09
"""The longest that a request of a user waits for Redis: with what else it needs, a tenth of a second."""
PATIENT_S = 1.0

DRIVER = DriverInfo()
"""What connections say of the library. Made once: each one that has none looks for the installed version."""

_SLOW_S = 0.05
"""An exchange that fails after this long pauses further ones."""
_PAUSE_S = 5.0
_REFUSED = ("can't run this command or subcommand", "ACL failure in script")
"""What Redis 6.2, and what later ones and Valkey say where a script runs a command that its user may not."""


class QueueUnavailable(Unavailable):
    """Redis does not answer. Callers that can go on without it do, because SQL has all that it would say."""


class RedisForbids(QueueUnavailable):
    """The user of Redis may not do what Torchyard needs: somebody must change its rules."""


class WrongKeys(QueueUnavailable):
    """A key of ours in Redis holds something of another type."""


def connect(url: str, *, timeout_s: float) -> Redis:
    """Returns a client that has not connected yet. Raises ConfigError."""
    try:
        # No retries: callers can always read the rows instead.
        return Redis.from_url(
            url,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            decode_responses=True,
            retry=Retry(NoBackoff(), 0),
            driver_info=DRIVER,
        )
    except ValueError:  # which may quote a part of the password
        raise ConfigError(
            "the address of Redis cannot be used: expected redis://:password@host:6379/0, rediss://… for TLS,"
            " or unix:///path/to/redis.sock"
        ) from None


@contextmanager
def translated(what: str = "read") -> Generator[None]:
    """Translates errors of one exchange with Redis. `what` is one of `PUSHES` in host/failpoints.py, or `read`."""
    try:
        failpoint(f"queue.{what}.before")
        yield
        failpoint(f"queue.{what}.after")
    except (RedisError, OSError) as error:
        if isinstance(error, NoPermissionError) or any(words in str(error) for words in _REFUSED):
            raise RedisForbids("the Redis user lacks a permission: `torchyard doctor` shows which") from error
        if "WRONGTYPE" in str(error):
            raise WrongKeys("a key of the queue in Redis has the wrong type") from error
        raise QueueUnavailable(f"redis does not answer: {error}") from error


class Pause:
    """Skips exchanges for some seconds after a slow failure, so that a frozen Redis delays one request, and once."""

    def __init__(self) -> None:
        self._until = 0.0

    @contextmanager
    def translated(self, what: str = "read") -> Generator[None]:
        """Translates errors of one exchange. Raises QueueUnavailable, at once if one has just failed slowly."""
        began = time.monotonic()
        if began < self._until:
            raise QueueUnavailable("redis did not answer a moment ago")
        try:
            with translated(what):
                yield
        except QueueUnavailable:
            now = time.monotonic()
            if now - began > _SLOW_S:
                self._until = now + _PAUSE_S
            raise
