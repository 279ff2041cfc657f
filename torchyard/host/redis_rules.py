"""What the user of Redis must be allowed to do, as `up` gives it to the Redis of its own."""

COMMANDS = (
    *("ping", "info", "time", "publish", "subscribe", "unsubscribe"),
    *("eval", "evalsha", "exists", "unlink", "pttl", "get", "set"),
    *("zadd", "zrem", "zrange", "zcard", "zcount", "zscore"),
    *("hget", "hset", "hdel", "hlen", "hscan"),
)
"""Those that `store` uses, in scripts too: no administration, and nothing that lists other keys."""
KEYS, CHANNELS = "~torchyard:*", "&torchyard:*"
