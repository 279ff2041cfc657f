"""Encoded items of jobs, a limited number at a time. All watchers of the process share reads and a cache."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from api.limits.turns import Turns
from torchyard.contract.telemetry.views import StoredKind

MOST_ITEMS = 500
"""Most items of one read where each is an event."""
MOST_BYTES = 1 << 18
"""Size after which a read ends."""
CACHE_BYTES = 1 << 24
_ENTRY_BYTES = 1 << 10
"""Bytes that a cache entry needs besides its data: one without an item of the asked kinds has no data."""


@dataclass(frozen=True)
class ItemsKey:
    """Which items: those of a job after a position, of these kinds or, if empty, of all."""

    job_id: str
    kinds: frozenset[StoredKind]
    after: int
    form: Literal["events", "columns"]
    """How the items are encoded."""


@dataclass(frozen=True)
class StoredItems:
    """The encoded items after a position, up to position `last`. `ended`: the job will store nothing more."""

    data: bytes
    last: int
    ended: bool = False

    @property
    def size(self) -> int:
        """Size in memory, in bytes."""
        return len(self.data) + _ENTRY_BYTES


class SharedItems:
    """Reads and caches items for all streams. Stored items never change; the cache may have ones that were removed.

    Call it in the event loop.
    """

    def __init__(self) -> None:
        self._turns = Turns()
        self._cache: OrderedDict[ItemsKey, StoredItems] = OrderedDict()
        self._cached_bytes = 0
        self._reads: dict[tuple[ItemsKey, int], asyncio.Task[StoredItems]] = {}

    def close(self) -> None:
        self._turns.close()

    async def get(self, key: ItemsKey, load: Callable[[], StoredItems], *, user: str, moment: int) -> StoredItems:
        """Returns the items of this key. Raises what `load` does, which runs in a turn of the user.

        Callers who ask at the same time, for the same `moment`, share one read. What has no new position is not cached,
        unless the job has ended.
        """
        if (items := self._cache.get(key)) is not None:
            self._cache.move_to_end(key)
            return items
        asked = (key, moment)
        read = self._reads.get(asked)
        if read is None:
            read = self._reads[asked] = asyncio.create_task(self._read(key, load, user=user))
            read.add_done_callback(lambda _: self._reads.pop(asked))
        # Shielded: the other watchers still need the items if this one is cancelled.
        return await asyncio.shield(read)

    async def _read(self, key: ItemsKey, load: Callable[[], StoredItems], *, user: str) -> StoredItems:
        items = await self._turns.go_on(user, load)
        if items.last > key.after or items.ended:
            self._keep(key, items)
        return items

    def _keep(self, key: ItemsKey, items: StoredItems) -> None:
        if (replaced := self._cache.pop(key, None)) is not None:  # two tasks may have read the same
            self._cached_bytes -= replaced.size
        self._cache[key] = items
        self._cached_bytes += items.size
        while self._cached_bytes > CACHE_BYTES:
            _, dropped = self._cache.popitem(last=False)
            self._cached_bytes -= dropped.size
