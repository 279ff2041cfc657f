"""Pages of what jobs store, which all watchers of the process share. What is stored never changes."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from api.limits.turns import Turns

MOST_ITEMS, MOST_BYTES = 500, 1 << 18
"""The limits of one page of single events."""
_CACHE_BYTES = 1 << 24
_PAGE_BYTES = 1 << 10
"""The memory of a page besides its data. A page of a stream of few kinds may have no data."""


@dataclass(frozen=True)
class StoredPage:
    """What follows a position, encoded, up to position `last`. `ended`: the job has ended and has nothing more."""

    data: bytes
    last: int
    ended: bool = False

    @property
    def size(self) -> int:
        """The page's size in memory, in bytes."""
        return len(self.data) + _PAGE_BYTES


class StoredPages:
    """A cache of pages. A cached page may still show items that retention has removed since, long after the job's end.

    Call it in the event loop.
    """

    def __init__(self) -> None:
        self._turns = Turns()
        self._cache: OrderedDict[Hashable, StoredPage] = OrderedDict()
        self._cached_bytes = 0
        self._reading: dict[Hashable, asyncio.Task[StoredPage]] = {}

    def close(self) -> None:
        self._turns.close()

    async def get(
        self, key: Hashable, load: Callable[[], StoredPage], *, user: str, after: int, moment: Hashable = None
    ) -> StoredPage:
        """Returns the page of this key, which follows position `after`. Raises what `load` does, in a turn of the user.

        Callers who ask at the same time, for the same `moment`, share one read.
        """
        if (found := self._cache.get(key)) is not None:
            self._cache.move_to_end(key)
            return found
        read = (key, moment)
        reading = self._reading.get(read)
        if reading is None:
            reading = self._reading[read] = asyncio.create_task(self._read(key, load, user=user, after=after))
            reading.add_done_callback(lambda _: self._reading.pop(read))
        # Shielded: the other watchers still need the page if this one is cancelled.
        return await asyncio.shield(reading)

    async def _read(self, key: Hashable, load: Callable[[], StoredPage], *, user: str, after: int) -> StoredPage:
        page = await self._turns.go_on(user, load)
        if page.last > after or page.ended:
            self._keep(key, page)
        return page

    def _keep(self, key: Hashable, page: StoredPage) -> None:
        if (replaced := self._cache.pop(key, None)) is not None:  # two tasks may have read the same page
            self._cached_bytes -= replaced.size
        self._cache[key] = page
        self._cached_bytes += page.size
        while self._cached_bytes > _CACHE_BYTES:
            _, dropped = self._cache.popitem(last=False)
            self._cached_bytes -= dropped.size
