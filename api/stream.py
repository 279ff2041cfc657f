"""Streams what a job stores as server-sent events (HTML Living Standard, 9.2), in pages that all its watchers share."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from anyio import CapacityLimiter, to_thread

from api import present
from api.live import Live
from store.queries import timeline
from store.queries.timeline import TimelineItem
from store.rows import jobs
from store.store import Store
from torchyard.contract.errors import NotAuthorized, NotFound, Unavailable
from torchyard.contract.job import JobState
from torchyard.contract.views import EndView, StoredKind

_HEARTBEAT_S = 15.0
_MOST_ITEMS, _MOST_BYTES = 500, 1 << 18
"""The limits of one page."""
_CACHE_BYTES = 1 << 24
_PAGE_BYTES = 1 << 10
"""The memory of a page besides its data. A page of a stream of few kinds may have no data."""
_READERS = 4
"""The most pages that are read at the same time, each in a thread."""


@dataclass(frozen=True)
class _PageKey:
    """The key of a page: the items of a job after a position, of these kinds or, if empty, of all."""

    job_id: str
    kinds: frozenset[StoredKind]
    after: int


@dataclass(frozen=True)
class _Page:
    """Encoded events up to position `last`. `ended`: the job has ended, and this page has its last event."""

    data: bytes
    last: int
    ended: bool

    @property
    def size(self) -> int:
        """The page's size in memory, in bytes."""
        return len(self.data) + _PAGE_BYTES


class Stream:
    """The streams of one process. Stored items never change, so a page that was read once serves every watcher.

    A cached page may still show items that retention has removed since, long after the end of the job.
    """

    def __init__(self, store: Store, live: Live) -> None:
        self._store = store
        self._live = live
        self._readers = CapacityLimiter(_READERS)
        self._cache: OrderedDict[_PageKey, _Page] = OrderedDict()
        self._cached_bytes = 0
        self._reading: dict[tuple[_PageKey, int], asyncio.Task[_Page]] = {}

    async def events(
        self, job_id: str, *, after: int, kinds: frozenset[StoredKind], user: str, check: Callable[[], None]
    ) -> AsyncGenerator[bytes]:
        """Yields everything stored after position `after`, then new items as they are stored, until the job ends.

        A watcher holds one shared page and no thread. The stream ends without an `end` event if the service stops, the
        job is deleted, or `check` raises NotAuthorized or NotFound: `user` may not watch any more.
        """
        loop = asyncio.get_running_loop()
        sent_at = loop.time()
        with self._live.watch(job_id, user=user) as watch:
            while not watch.ended:
                try:
                    if watch.is_check_due():
                        await to_thread.run_sync(check, limiter=self._readers)
                    page = await self._page(_PageKey(job_id, kinds, after))
                except (NotAuthorized, NotFound):
                    return
                except Unavailable:
                    page = _Page(b"", after, ended=False)  # tried again until the database answers
                if page.data:
                    yield page.data
                    sent_at = loop.time()
                if page.ended:
                    return
                if page.last == after:
                    await watch.wait_for_change(within=sent_at + _HEARTBEAT_S - loop.time())
                after = page.last
                if loop.time() - sent_at >= _HEARTBEAT_S:
                    yield b": heartbeat\n\n"
                    sent_at = loop.time()

    async def _page(self, key: _PageKey) -> _Page:
        if (found := self._cache.get(key)) is not None:
            self._cache.move_to_end(key)
            return found
        # A read that began before the newest announcement may not see the change that it announced.
        read = (key, self._live.announcements)
        reading = self._reading.get(read)
        if reading is None:
            reading = self._reading[read] = asyncio.create_task(self._read(key))
            reading.add_done_callback(lambda _: self._reading.pop(read))
        # Shielded: the other watchers still need the page if this one is cancelled.
        return await asyncio.shield(reading)

    async def _read(self, key: _PageKey) -> _Page:
        page = await to_thread.run_sync(self._load, key, limiter=self._readers)
        if page.last > key.after or page.ended:
            self._keep(key, page)
        return page

    def _keep(self, key: _PageKey, page: _Page) -> None:
        if (replaced := self._cache.pop(key, None)) is not None:  # two tasks may have read the same page
            self._cached_bytes -= replaced.size
        self._cache[key] = page
        self._cached_bytes += page.size
        while self._cached_bytes > _CACHE_BYTES:
            _, dropped = self._cache.popitem(last=False)
            self._cached_bytes -= dropped.size

    def _load(self, key: _PageKey) -> _Page:
        with self._store.read() as session:
            job = jobs.get(session, key.job_id)
            events: list[bytes] = []
            size, last = 0, key.after
            for item in timeline.after(session, key.job_id, key.after, kinds=key.kinds):
                events.append(_encoded(item))
                size += len(events[-1])
                last = item.position
                if len(events) == _MOST_ITEMS or size >= _MOST_BYTES:
                    return _Page(b"".join(events), last, ended=False)
        state = JobState(job.state)
        if state.terminal:
            events.append(_event(job.position, "end", EndView(state=state).model_dump_json()))
        return _Page(b"".join(events), max(last, job.position), ended=state.terminal)


def _encoded(item: TimelineItem) -> bytes:
    return _event(item.position, item.kind, present.item(item).model_dump_json())


def _event(position: int, kind: str, data: str) -> bytes:
    return f"id: {position}\nevent: {kind}\ndata: {data}\n\n".encode()
