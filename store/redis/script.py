"""A script that Redis runs."""

from collections.abc import Sequence
import hashlib
from typing import Any

from redis import Redis
from redis.exceptions import NoScriptError


class Script:
    """Redis is sent its digest, and the whole if it does not know that. Its text is the parts, one after the other."""

    def __init__(self, *parts: str) -> None:
        self.text = "\n".join(parts)
        self.digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def run(self, redis: Redis, base: str, arguments: Sequence[str | int | float] = ()) -> Any:
        """`base` is its KEYS[1]. Raises RedisError."""
        try:
            return self._run(redis, base, arguments)
        except NoScriptError:
            return redis.eval(self.text, 1, base, *arguments)

    def _run(self, redis: Redis, base: str, arguments: Sequence[str | int | float]) -> Any:
        # As the client's own `evalsha` does, but without its retries and hooks, which take longer than all of this.
        pool = redis.connection_pool
        connection = pool.get_connection()
        try:
            connection.send_command("EVALSHA", self.digest, 1, base, *arguments)
            return connection.read_response()
        finally:
            pool.release(connection)
