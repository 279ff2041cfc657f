"""Streams what several jobs store, and that lists have changed, in one answer with one cursor."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator, Mapping
from dataclasses import dataclass
from functools import partial
import json

from api.streams.events import HEARTBEAT, HEARTBEAT_S, encoded, shows_lines
from api.streams.feed import Feed
from api.streams.stored import MOST_BYTES, ItemsKey, SharedItems, StoredItems
from api.streams.subscription import Subscription
from store.jobs import timeline as timelines
from store.jobs.facts import Head, VisibleJobs
from store.output.facts import TimelineItem
from store.store import Store
from store.team.callers import Caller
from torchyard.contract.errors import NotAuthorized, Unavailable
from torchyard.contract.telemetry.views import (
    ChangedView,
    EventView,
    ListedView,
    LogLine,
    StoredKind,
    StreamCursor,
    StreamTopic,
)
from torchyard.contract.wire.codec import json_number

MOST_ITEMS = 2000
"""The most items of one event."""
_PAUSE_S = 0.5
"""Seconds before the database is asked again when it did not answer."""


@dataclass(frozen=True)
class WatchRequest:
    """What a caller asked for."""

    heads: Mapping[str, Head]
    """The jobs to watch, with their heads as they were just now."""
    after: Mapping[str, int]
    """The positions after which jobs begin. Others begin at their head."""
    kinds: frozenset[StoredKind]
    topics: frozenset[StreamTopic]
    caller: Caller
    check: Callable[[Collection[str]], Awaitable[VisibleJobs]]
    """Returns which of the jobs the caller may read. Raises NotAuthorized when the credential has ended."""


class MultiplexedStream:
    """The streams of several jobs of one process. A watcher holds no thread, and shares the items that it holds."""

    def __init__(self, store: Store, feed: Feed, items: SharedItems) -> None:
        self._store = store
        self._feed = feed
        self._shared = items

    async def events(self, request: WatchRequest) -> AsyncGenerator[bytes]:
        """Yields events until the caller leaves, the service stops, or the caller's credential ends."""
        loop = asyncio.get_running_loop()
        positions = {job_id: request.after.get(job_id, head.position) for job_id, head in request.heads.items()}
        with self._feed.subscribe(request.heads, topics=request.topics, caller=request.caller) as mine:
            cursor = _cursor(positions)
            yield encoded("ready", StreamCursor(cursor=cursor).model_dump_json(), id=cursor)
            sent_at = loop.time()
            while not mine.watch.ended:
                self._feed.check()
                within = sent_at + HEARTBEAT_S - loop.time()
                try:
                    if mine.watch.is_check_due():
                        await self._check(mine, request)
                    async for event in self._items(mine, request, positions):
                        yield event
                        sent_at = loop.time()
                except NotAuthorized:
                    return
                except Unavailable:
                    within = min(within, _PAUSE_S)  # tried again until the database answers
                    await asyncio.sleep(within)
                for event in _taken(mine):
                    yield event
                    sent_at = loop.time()
                if not self._behind(mine, positions):
                    for event in _lines(mine, request):
                        yield event
                        sent_at = loop.time()
                    await mine.watch.wait_for_change(within=max(within, 0.0))
                if loop.time() - sent_at >= HEARTBEAT_S:
                    yield HEARTBEAT
                    sent_at = loop.time()

    async def _check(self, mine: Subscription, request: WatchRequest) -> None:
        """Leaves out the jobs that the caller may not read any more. Raises NotAuthorized and Unavailable."""
        asked = frozenset(mine.jobs)
        sight = await request.check(asked)
        for job_id in asked - sight.existing:
            mine.give_deleted(job_id)
        mine.jobs -= asked - sight.readable

    async def _items(
        self, mine: Subscription, request: WatchRequest, positions: dict[str, int]
    ) -> AsyncGenerator[bytes]:
        """Yields the next items of each job that has some, and moves its position behind it."""
        for job_id in self._behind(mine, positions):
            to = self._feed.position(job_id)
            if to is None:
                continue  # it was deleted meanwhile
            key = ItemsKey(job_id, request.kinds, positions[job_id], form="columns")
            load = partial(self._load, key, to=to)
            items = await self._shared.get(key, load, user=request.caller.name, moment=to)
            if job_id not in mine.jobs:
                continue  # it was deleted meanwhile
            positions[job_id] = items.last
            if items.data:
                yield b"id: %b\nevent: items\ndata: %b\n\n" % (_cursor(positions).encode(), items.data)

    def _behind(self, mine: Subscription, positions: Mapping[str, int]) -> list[str]:
        """Returns the jobs that have stored something after their positions."""
        newest = {job_id: self._feed.position(job_id) for job_id in positions if job_id in mine.jobs}
        return [job_id for job_id, position in newest.items() if position is not None and positions[job_id] < position]

    def _load(self, key: ItemsKey, *, to: int) -> StoredItems:
        page = _Columns(key.job_id)
        with self._store.read() as session:
            timeline = timelines.read(session, key.job_id, key.after, kinds=key.kinds)
            for item in timeline.items:
                if item.position > to:
                    break
                page.add(item)
                if page.items == MOST_ITEMS or page.size >= MOST_BYTES:
                    return StoredItems(page.encoded(item.position), item.position)
        return StoredItems(page.encoded(to), to)


class _Columns:
    """Items of one job, which become an `ItemsView`."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._metrics: dict[str, dict[str, list[float | str | None]]] = {}
        self._logs: list[str] = []
        self._events: list[str] = []
        self.items = 0
        self.size = 0

    def add(self, item: TimelineItem) -> None:
        self.items += 1
        content = item.content
        if isinstance(content, EventView | LogLine):
            text = content.model_dump_json()
            (self._events if isinstance(content, EventView) else self._logs).append(text)
            self.size += len(text)
            return
        columns = self._metrics.setdefault(content.key, {"step": [], "value": [], "time": [], "attempt": []})
        columns["step"].append(content.step)
        columns["value"].append(json_number(content.value))
        columns["time"].append(round(content.time / 1e6, 3))
        columns["attempt"].append(item.attempt)
        self.size += 50

    def encoded(self, position: int) -> bytes:
        """Returns the items as JSON; nothing if there are none."""
        if not self.items:
            return b""
        metrics = json.dumps(self._metrics, separators=(",", ":"))
        logs, events = ",".join(self._logs), ",".join(self._events)
        return (
            f'{{"job_id":"{self._job_id}","position":{position},"metrics":{metrics},'
            f'"logs":[{logs}],"events":[{events}]}}'
        ).encode()


def _lines(mine: Subscription, request: WatchRequest) -> Generator[bytes]:
    """Yields `live` events."""
    for line in mine.watch.take_lines() if shows_lines(request.kinds) else ():
        if line.job_id in mine.jobs:
            yield encoded("live", line.model_dump_json())


def _taken(mine: Subscription) -> Generator[bytes]:
    """Yields `job`, `jobs`, `queue` and `workers` events."""
    rows, mine.rows = mine.rows, {}
    listed, mine.listed = mine.listed, {}
    hints, mine.hints = mine.hints, set()
    for row in rows.values():
        yield b"event: job\ndata: %b\n\n" % row
    for job_id, deleted in listed.items():
        yield encoded("jobs", ListedView(job_id=job_id, deleted=deleted).model_dump_json())
    for topic in sorted(hints):
        yield encoded(topic, ChangedView().model_dump_json())


def _cursor(positions: Mapping[str, int]) -> str:
    return ",".join(f"{job_id}:{position}" for job_id, position in positions.items())
