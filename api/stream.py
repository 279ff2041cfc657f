"""A job's stored sequence as server-sent events (HTML Living Standard, 9.2), in pages that all its watchers share."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from anyio import CapacityLimiter, to_thread

from api import present
from api.live import Live
from store.queries import timeline
from store.queries.timeline import TimelineItem
from store.rows import jobs
from store.store import Store
from torchyard.contract.errors import NotFound, Unavailable
from torchyard.contract.job import JobState
from torchyard.contract.views import EndView, StoredKind

_HEARTBEAT_S = 15.0
_MOST_ITEMS, _MOST_BYTES = 500, 1 << 18
"""Of one page."""
_CACHE_BYTES = 1 << 24
_PAGE_BYTES = 1 << 10
"""What a page takes besides its data, which a stream of some kinds may well be without."""
_READERS = 4
"""Pages that are read at once, each in a thread."""


@dataclass(frozen=True)
class _Wanted:
    """A page: what follows a position of a job, of some kinds or of all."""

    job_id: str
    kinds: frozenset[StoredKind]
    after: int


@dataclass(frozen=True)
class _Page:
    """Encoded events up to `last`. `ended`: the job is terminal, and there will be no more."""

    data: bytes
    last: int
    ended: bool

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return len(self.data) + _PAGE_BYTES


class Stream:
    """The streams of one process. What was stored never changes, so a page that was read serves everybody.

    What retention has removed since, long after the end of a job, a page that is still held shows once more.
    """

    def __init__(self, store: Store, live: Live) -> None:
        self._store = store
        self._live = live
        self._readers = CapacityLimiter(_READERS)
        self._cache: OrderedDict[_Wanted, _Page] = OrderedDict()
        self._cached_bytes = 0
        self._reading: dict[tuple[_Wanted, int], asyncio.Task[_Page]] = {}

    async def events(self, job_id: str, *, after: int, kinds: frozenset[StoredKind]) -> AsyncGenerator[bytes]:
        """Everything stored behind `after` and, as it comes, what is stored later; the end of the job ends it.

        A watcher holds one shared page and no thread. It also ends, without an `end`, when the service stops or the job
        is deleted.
        """
        loop = asyncio.get_running_loop()
        said = loop.time()
        with self._live.watch(job_id) as watch:
            while not watch.over:
                try:
                    page = await self._page(_Wanted(job_id, kinds, after))
                except NotFound:
                    return
                except Unavailable:
                    page = _Page(b"", after, ended=False)  # the database comes back, and the watcher is still there
                if page.data:
                    yield page.data
                    said = loop.time()
                if page.ended:
                    return
                if page.last == after:
                    await watch.changed(within=said + _HEARTBEAT_S - loop.time())
                after = page.last
                if loop.time() - said >= _HEARTBEAT_S:
                    yield b": heartbeat\n\n"
                    said = loop.time()

    async def _page(self, wanted: _Wanted) -> _Page:
        if (found := self._cache.get(wanted)) is not None:
            self._cache.move_to_end(wanted)
            return found
        # A read that began before the newest announcement may not see what was announced.
        key = (wanted, self._live.heard)
        reading = self._reading.get(key)
        if reading is None:
            reading = self._reading[key] = asyncio.create_task(self._read(wanted))
            reading.add_done_callback(lambda _: self._reading.pop(key))
        # Shielded: a watcher that leaves must not take the page away from the others.
        return await asyncio.shield(reading)

    async def _read(self, wanted: _Wanted) -> _Page:
        page = await to_thread.run_sync(self._load, wanted, limiter=self._readers)
        if page.last > wanted.after or page.ended:
            self._keep(wanted, page)
        return page

    def _keep(self, wanted: _Wanted, page: _Page) -> None:
        if (replaced := self._cache.pop(wanted, None)) is not None:  # two may read a page at the same time
            self._cached_bytes -= replaced.size
        self._cache[wanted] = page
        self._cached_bytes += page.size
        while self._cached_bytes > _CACHE_BYTES:
            _, dropped = self._cache.popitem(last=False)
            self._cached_bytes -= dropped.size

    def _load(self, wanted: _Wanted) -> _Page:
        with self._store.read() as session:
            job = jobs.get(session, wanted.job_id)
            events: list[bytes] = []
            size, last = 0, wanted.after
            for item in timeline.after(session, wanted.job_id, wanted.after, kinds=wanted.kinds):
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
