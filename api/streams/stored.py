"""Pages of what jobs store, which all watchers of the process share. What is stored never changes."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from api.limits.turns import Turns
from torchyard.contract.views.telemetry import StoredKind

MOST_ITEMS = 500
"""Most items of a page of single events."""
MOST_BYTES = 1 << 18
"""Size at which a page ends."""
_CACHE_BYTES = 1 << 24
_PAGE_BYTES = 1 << 10
"""Bytes that a cached page needs besides its data: a page without an item of the asked kinds has no data."""


@dataclass(frozen=True)
class PageKey:
    """Which page: the items of a job after a position, of these kinds or, if empty, of all."""

    job_id: str
    kinds: frozenset[StoredKind]
    after: int
    form: Literal["events", "columns"]
    """How the items are encoded."""


@dataclass(frozen=True)
class StoredPage:
    """The encoded items after a position, up to position `last`. `ended`: the job will store nothing more."""

    data: bytes
    last: int
    ended: bool = False

    @property
    def size(self) -> int:
        """The page's size in memory, in bytes."""
        return len(self.data) + _PAGE_BYTES


class StoredPages:
    """A cache of the pages of all streams. What is stored never changes; a page may outlive items that were removed.

    Call it in the event loop.
    """

    def __init__(self) -> None:
        self._turns = Turns()
        self._cache: OrderedDict[PageKey, StoredPage] = OrderedDict()
        self._cached_bytes = 0
        self._reads: dict[tuple[PageKey, int], asyncio.Task[StoredPage]] = {}

    def close(self) -> None:
        self._turns.close()

    async def get(self, key: PageKey, load: Callable[[], StoredPage], *, user: str, moment: int) -> StoredPage:
        """Returns the page of this key. Raises what `load` does, which runs in a turn of the user.

        Callers who ask at the same time, for the same `moment`, share one read. A page without a new position is not
        cached, unless the job has ended.
        """
        if (found := self._cache.get(key)) is not None:
            self._cache.move_to_end(key)
            return found
        asked = (key, moment)
        read = self._reads.get(asked)
        if read is None:
            read = self._reads[asked] = asyncio.create_task(self._read(key, load, user=user))
            read.add_done_callback(lambda _: self._reads.pop(asked))
        # Shielded: the other watchers still need the page if this one is cancelled.
        return await asyncio.shield(read)

    async def _read(self, key: PageKey, load: Callable[[], StoredPage], *, user: str) -> StoredPage:
        page = await self._turns.go_on(user, load)
        if page.last > key.after or page.ended:
            self._keep(key, page)
        return page

    def _keep(self, key: PageKey, page: StoredPage) -> None:
        if (replaced := self._cache.pop(key, None)) is not None:  # two tasks may have read the same page
            self._cached_bytes -= replaced.size
        self._cache[key] = page
        self._cached_bytes += page.size
        while self._cached_bytes > _CACHE_BYTES:
            _, dropped = self._cache.popitem(last=False)
            self._cached_bytes -= dropped.size
