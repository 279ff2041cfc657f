"""Streams what one job stores, an event for each item. All its watchers share the reads."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from api.present.times import time
from api.streams.events import HEARTBEAT, HEARTBEAT_S, encoded, shows_lines
from api.streams.live import Live
from api.streams.stored import MOST_BYTES, MOST_ITEMS, ItemsKey, SharedItems, StoredItems
from store.jobs import timeline as timelines
from store.output.facts import MetricPoint, TimelineItem
from store.store import Store
from torchyard.contract.errors import NotAuthorized, NotFound, Unavailable
from torchyard.contract.telemetry.views import EndView, MetricView, StoredKind
from torchyard.contract.wire.view import View


class SingleStream:
    """The streams of single jobs of one process."""

    def __init__(self, store: Store, live: Live, items: SharedItems) -> None:
        self._store = store
        self._live = live
        self._shared = items

    def close(self) -> None:
        self._shared.close()

    async def events(
        self, job_id: str, *, after: int, kinds: frozenset[StoredKind], user: str, check: Callable[[], Awaitable[None]]
    ) -> AsyncGenerator[bytes]:
        """Yields everything stored after position `after`, then new items as they are stored, until the job ends.

        In between, it yields `live` events: the newest text of output lines that have no end yet.

        A watcher holds no thread, and shares the items that it holds. The stream ends without an `end` event if the
        service stops, the job is deleted, or `check` raises NotAuthorized or NotFound: `user` may not watch any more.
        """
        loop = asyncio.get_running_loop()
        sent_at = loop.time()
        with self._live.watch(job_id, user=user, lines=shows_lines(kinds)) as watch:
            while not watch.ended:
                try:
                    if watch.is_check_due():
                        await check()
                    items = await self._next(ItemsKey(job_id, kinds, after, form="events"), user)
                except (NotAuthorized, NotFound):
                    return
                except Unavailable:
                    items = StoredItems(b"", after)  # tried again until the database answers
                if items.data:
                    yield items.data
                    sent_at = loop.time()
                if items.ended:
                    return
                if items.last == after:
                    for line in watch.take_lines():
                        yield encoded("live", line.model_dump_json())
                        sent_at = loop.time()
                    await watch.wait_for_change(within=sent_at + HEARTBEAT_S - loop.time())
                after = items.last
                if loop.time() - sent_at >= HEARTBEAT_S:
                    yield HEARTBEAT
                    sent_at = loop.time()

    async def _next(self, key: ItemsKey, user: str) -> StoredItems:
        # A read that began before the newest announcement may not see the change that it announced.
        moment = self._live.announcements
        return await self._shared.get(key, lambda: self._load(key), user=user, moment=moment)

    def _load(self, key: ItemsKey) -> StoredItems:
        with self._store.read() as session:
            timeline = timelines.read(session, key.job_id, key.after, kinds=key.kinds)
            events: list[bytes] = []
            size, last = 0, key.after
            for item in timeline.items:
                events.append(encoded(item.kind, view_of(item).model_dump_json(), id=str(item.position)))
                size += len(events[-1])
                last = item.position
                if len(events) == MOST_ITEMS or size >= MOST_BYTES:
                    return StoredItems(b"".join(events), last)
        state, newest = timeline.state, timeline.position
        if state.terminal:
            events.append(encoded("end", EndView(state=state).model_dump_json(), id=str(newest)))
        return StoredItems(b"".join(events), max(last, newest), ended=state.terminal)


def view_of(item: TimelineItem) -> View:
    """Returns the view of an item of a stream."""
    content = item.content
    if not isinstance(content, MetricPoint):
        return content
    assert item.attempt is not None  # points come from attempts only
    values = {"key": content.key, "step": content.step, "value": content.value, "time": time(content.time)}
    return MetricView.model_validate({**values, "attempt": item.attempt})
