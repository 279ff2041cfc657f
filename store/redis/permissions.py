"""Asks Redis what its user may do, by doing it to keys that hold nothing: Redis 6.2 has no command that says it."""

from collections.abc import Mapping
from typing import Any

from redis import ConnectionError, Redis
from redis.exceptions import NoPermissionError

from store.redis import names as redis_names
from torchyard.host.redis_rules import COMMANDS

_UNASKED = frozenset({"subscribe", "unsubscribe"})
"""They would turn the connection into a subscription."""


def missing(redis: Redis, service: str) -> tuple[str, ...]:
    """Returns the rules that the user of the connection lacks, as `ACL SETUSER` takes them. Raises RedisError."""
    questions = _questions(redis_names.scratch(service))
    with redis.pipeline(transaction=False) as pipeline:
        for command in COMMANDS:
            if command not in _UNASKED:
                pipeline.execute_command(command.upper(), *questions[command])
        pipeline.execute_command("HDEL", *questions["hdel"])
        answers = pipeline.execute(raise_on_error=False)
    asked = [command for command in COMMANDS if command not in _UNASKED]
    names: dict[str, None] = {}
    for command, answer in zip([*asked, "hdel"], answers, strict=True):
        if isinstance(answer, NoPermissionError):
            names[_rule(command, str(answer), service)] = None
        elif isinstance(answer, ConnectionError):  # a replica, for example, refuses to write, and forbids nothing
            raise answer
    return tuple(names)


def _questions(key: str) -> Mapping[str, tuple[Any, ...]]:
    """Returns arguments with which each command changes nothing, but for a field that is removed at the end."""
    none, field = f"{key}:none", f"{key}:hash"
    return {
        "ping": (),
        "time": (),
        "info": ("server",),
        "publish": (key, ""),
        "eval": ("return 0", 0),
        "evalsha": ("0" * 40, 0),
        **dict.fromkeys(("exists", "unlink", "pttl", "get", "zcard", "hlen"), (none,)),
        "set": (none, "", "XX"),
        "zadd": (none, "XX", 0, "member"),
        "zrem": (none, "member"),
        "zrange": (none, 0, 0),
        "zcount": (none, 0, 0),
        "zscore": (none, "member"),
        "hget": (none, "field"),
        "hscan": (none, 0),
        "hset": (field, "field", ""),
        "hdel": (field, "field"),
    }


def _rule(command: str, answer: str, service: str) -> str:
    """Returns what to add so that Redis does not give this answer."""
    if "channel" in answer:
        return f"&torchyard:{service}:*"
    return f"~torchyard:{service}:*" if "key" in answer else f"+{command}"
