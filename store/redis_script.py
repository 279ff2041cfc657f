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
            return redis.evalsha(self.digest, 1, base, *arguments)
        except NoScriptError:
            return redis.eval(self.text, 1, base, *arguments)
