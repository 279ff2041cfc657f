"""Chooses a share of the tests, `3/30`: each is in one share, which depends on nothing but its name."""

from dataclasses import dataclass
from zlib import crc32


@dataclass(frozen=True)
class Shard:
    number: int
    """From 1 on."""
    shards: int

    def has(self, nodeid: str) -> bool:
        return crc32(nodeid.encode()) % self.shards == self.number - 1


def parse_shard(text: str) -> Shard:
    """Raises ValueError if the text is no share."""
    number, slash, shards = text.partition("/")
    shard = Shard(int(number), int(shards)) if slash else None
    if shard is None or not 1 <= shard.number <= shard.shards:
        raise ValueError(f"{text!r} is no share such as 3/30")
    return shard
