"""Reads what changes, once for all streams of several jobs of the process, and gives each stream its part."""

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from anyio import to_thread

from api import present
from api.streams.live import Live, Watch
from store.announcement import QUEUE, WORKERS, job_of_row
from store.ids import is_id
from store.queries import listing, timeline
from store.queries.timeline import Head
from store.rows import access
from store.rows.access import SERVICE, Caller
from store.store import Store
from torchyard.contract.errors import Unavailable
from torchyard.contract.team import Role
from torchyard.contract.views.jobs import JobSummary
from torchyard.contract.views.telemetry import StreamTopic

ITEMS_S, ROWS_S, HINTS_S = 0.25, 0.5, 1.0
"""The least seconds between two reads of a job's position, of rows of lists, and between two hints."""
_UNANNOUNCED_HINTS_S = 5.0
"""Seconds between two hints where changes are not announced."""
_PAUSE_S = 0.5
"""Seconds before the database is asked again when it did not answer."""
_MOST_ROWS = 100
"""The most rows of one read."""
MOST_PENDING = 1000
"""The most changed jobs that are kept for a read, or for a slow reader. Of more, only that there were is told."""
_TOPICS: Mapping[str, StreamTopic] = {QUEUE: "queue", WORKERS: "workers"}


@dataclass(frozen=True)
class Sight:
    """Of some jobs, those that a caller may read, and those that exist."""

    readable: frozenset[str]
    existing: frozenset[str]


@dataclass(frozen=True)
class ListedRow:
    """A job's row, as who may read the job sees it and as who may only list it does."""

    job: JobSummary
    whole: bytes
    withheld: bytes

    def shown_to(self, caller: Caller) -> bytes | None:
        """Returns what the caller sees of it; None if they may not list it."""
        if access.may_read(caller, self.job):
            return self.whole
        return self.withheld if access.may_list(caller, self.job) else None


@dataclass(eq=False)
class Subscription:
    """What one stream asked for, and what is there for it that it has not sent yet."""

    watch: Watch
    caller: Caller
    topics: frozenset[StreamTopic]
    jobs: set[str]
    """The jobs whose items it gets, which are in `Feed.heads`."""
    rows: dict[str, bytes] = field(default_factory=dict[str, bytes])
    listed: dict[str | None, bool] = field(default_factory=dict[str | None, bool])
    """Jobs that changed in lists, each with whether it was deleted. None: jobs that nobody counted."""
    hints: set[StreamTopic] = field(default_factory=set[StreamTopic])
    _last: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def give_row(self, row: ListedRow) -> None:
        """Adds a job's row, if the stream asked for it and shows another one."""
        job_id, shown = row.job.id, row.shown_to(self.caller)
        if shown is None or not (job_id in self.jobs or "jobs" in self.topics):
            return
        if job_id in self.jobs:
            if self._last.get(job_id) == shown:
                return
            self._last[job_id] = shown
        if len(self.rows) < MOST_PENDING or job_id in self.rows:
            self.rows[job_id] = shown
        else:
            self.give_listed(None, deleted=False)
        self.watch.wake()

    def give_hints(self, topics: Collection[StreamTopic]) -> None:
        """Adds that something else has changed, of what the stream asked for."""
        wanted = self.topics.intersection(topics)
        if wanted:
            self.hints |= wanted
            self.watch.wake()

    def give_deleted(self, job_id: str) -> None:
        """Adds that a job which the stream watches was deleted."""
        self.jobs.discard(job_id)
        self.give_listed(job_id, deleted=True)

    def give_listed(self, job_id: str | None, *, deleted: bool) -> None:
        """Adds that a job was added to lists, moved in them or deleted."""
        if len(self.listed) >= MOST_PENDING:
            self.listed.clear()
            job_id, deleted = None, False
        self.listed[job_id] = deleted
        self.watch.wake()


@dataclass(frozen=True)
class _Due:
    """What to read now."""

    items: Collection[str]
    rows: Collection[str]


@dataclass(frozen=True)
class _Found:
    heads: Mapping[str, Head]
    rows: Mapping[str, ListedRow]


class Feed:
    """The positions of the jobs that streams watch, and what changes in lists. One task reads for all of them.

    Call it in the event loop.
    """

    def __init__(self, store: Store, live: Live) -> None:
        self._store = store
        self._live = live
        self.heads: dict[str, Head] = {}
        """The newest known position of each watched job. Everything up to it can be read."""
        self._subscriptions: set[Subscription] = set()
        self._reader: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._items: dict[str, None] = {}
        """Jobs whose position may have risen."""
        self._rows: dict[str, None] = {}
        """Jobs whose row may have changed."""
        self._moving: set[str] = set()
        """Jobs of `_rows` that have changed in lists."""
        self._moved: dict[str, ListedRow | None] = {}
        """The rows of such jobs, which no hint has told yet; None for one that is deleted."""
        self._many_moved = False
        """Whether jobs changed in lists that nobody counted."""
        self._seen: OrderedDict[str, ListedRow] = OrderedDict()
        """Rows that were read: who may hear that a job is deleted is known from them alone."""
        self._hints: set[StreamTopic] = set()
        self._items_at: dict[str, float] = {}
        self._rows_at = self._hints_at = self._polled_at = 0.0

    @contextmanager
    def subscribe(
        self, heads: Mapping[str, Head], *, topics: frozenset[StreamTopic], caller: Caller
    ) -> Generator[Subscription]:
        """Adds a stream for the duration of the block. `heads`: of the jobs that it watches, as they were just now."""
        with self._live.watch_access(heads, user=caller.name) as watch:
            mine = Subscription(watch, caller, topics, set(heads))
            self._subscriptions.add(mine)
            for job_id, head in heads.items():
                self.heads.setdefault(job_id, head)
                self._items[job_id] = self._rows[job_id] = None
            self._start()
            try:
                yield mine
            finally:
                self._subscriptions.discard(mine)
                self._forget(heads)

    def check(self) -> None:
        """Raises the error that ended the reads, if one did."""
        if self._reader is not None and self._reader.done():
            self._reader.result()

    def _start(self) -> None:
        self._woken.set()
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._run())
            self._reader.add_done_callback(lambda _: self._wake_all())

    def _forget(self, job_ids: Iterable[str]) -> None:
        watched = set[str]().union(*(other.jobs for other in self._subscriptions))
        for job_id in set(job_ids) - watched:
            self.heads.pop(job_id, None)
            self._items.pop(job_id, None)
            self._items_at.pop(job_id, None)
        if not self._subscriptions and self._reader is not None:
            self._reader.cancel()
            self._reader = None
            for pending in (self._items, self._rows, self._moving, self._moved, self._hints):
                pending.clear()

    async def _run(self) -> None:
        with self._live.hear(self._hear) as watch:
            while not watch.ended:
                await self._wait(watch)
                due = self._take_due()
                try:
                    found = await to_thread.run_sync(self._read, due) if due.items or due.rows else _Found({}, {})
                except Unavailable:
                    self._items |= dict.fromkeys(due.items)
                    self._rows |= dict.fromkeys(due.rows)
                    await asyncio.sleep(_PAUSE_S)
                    continue
                self._give_heads(due, found)
                self._give_rows(due, found)
                self._give_hints()

    def _hear(self, name: str | None) -> None:
        """Notes what was announced."""
        if name is None:
            self._note_everything()
        elif name in _TOPICS:
            self._hints.add(_TOPICS[name])
        elif (job_id := job_of_row(name)) is not None:
            if self._wants_row(job_id) and self._note_row(job_id):
                self._moving.add(job_id)
        elif is_id(name, "job"):
            if name in self.heads:
                self._items[name] = None
            if self._wants_row(name):
                self._note_row(name)
        else:
            return
        self._woken.set()

    def _note_row(self, job_id: str) -> bool:
        """Notes that a row may have changed. Returns False if there are too many."""
        if len(self._rows) >= MOST_PENDING and job_id not in self.heads:
            self._many_moved = True
            return False
        self._rows[job_id] = None
        return True

    def _note_everything(self) -> None:
        """Notes that anything may have changed."""
        self._items |= dict.fromkeys(self.heads)
        self._rows |= dict.fromkeys(self.heads)
        self._hints |= {"queue", "workers"}
        self._many_moved = True

    def _wants_row(self, job_id: str) -> bool:
        return job_id in self.heads or any("jobs" in each.topics for each in self._subscriptions)

    async def _wait(self, watch: Watch) -> None:
        """Returns when something is due, and after some seconds in any case, as an announcement may be lost."""
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            next_due = self._next_due()
            if next_due <= now:
                return
            poll_at = self._polled_at + watch.longest_wait_s
            if poll_at <= now:
                self._polled_at = now
                self._items |= dict.fromkeys(self.heads)
                if watch.polls and now >= self._hints_at + _UNANNOUNCED_HINTS_S:
                    self._note_everything()
                continue
            self._woken.clear()
            try:
                async with asyncio.timeout(min(next_due, poll_at) - now):
                    await self._woken.wait()
            except TimeoutError:
                pass

    def _next_due(self) -> float:
        times = [self._items_at.get(job_id, 0.0) + ITEMS_S for job_id in self._items]
        if self._rows:
            times.append(self._rows_at + ROWS_S)
        if self._has_hints:
            times.append(self._hints_at + HINTS_S)
        return min(times, default=float("inf"))

    def _take_due(self) -> _Due:
        now = asyncio.get_running_loop().time()
        items = [job_id for job_id in self._items if self._items_at.get(job_id, 0.0) + ITEMS_S <= now]
        for job_id in items:
            del self._items[job_id]
            self._items_at[job_id] = now
        rows: list[str] = []
        if self._rows and self._rows_at + ROWS_S <= now:
            # The jobs that streams watch come first.
            rows = sorted(self._rows, key=lambda job_id: job_id not in self.heads)[:_MOST_ROWS]
            for job_id in rows:
                del self._rows[job_id]
            self._rows_at = now
        return _Due(items, rows)

    def _read(self, due: _Due) -> _Found:
        with self._store.read() as session:
            heads = timeline.heads(session, due.items) if due.items else {}
            if not due.rows:
                return _Found(heads, {})
            shown = present.summaries(session, listing.some(session, due.rows), SERVICE)
        rows = {job.id: ListedRow(job, _json(job), _json(present.withheld(job))) for job in shown}
        return _Found(heads, rows)

    def _give_heads(self, due: _Due, found: _Found) -> None:
        for job_id in due.items:
            known, head = self.heads.get(job_id), found.heads.get(job_id)
            if known is None or head == known:
                continue  # nobody watches it any more, or nothing is new
            self._rows[job_id] = None
            if head is None:
                continue  # the read of its row tells that it is deleted
            self.heads[job_id] = head
            for each in self._subscriptions:
                if job_id in each.jobs:
                    each.watch.wake()

    @property
    def _has_hints(self) -> bool:
        return bool(self._hints or self._moved or self._many_moved)

    def _give_rows(self, due: _Due, found: _Found) -> None:
        for job_id in due.rows:
            row = found.rows.get(job_id)
            if row is None:
                self.heads.pop(job_id, None)
            else:
                self._seen[job_id] = row
                self._seen.move_to_end(job_id)
            for each in self._subscriptions:
                if row is not None:
                    each.give_row(row)
                elif job_id in each.jobs:
                    each.give_deleted(job_id)
            if job_id in self._moving:
                self._moving.discard(job_id)
                self._moved[job_id] = row
        while len(self._seen) > MOST_PENDING:
            self._seen.popitem(last=False)

    def _give_hints(self) -> None:
        now = asyncio.get_running_loop().time()
        if not self._has_hints or now < self._hints_at + HINTS_S:
            return
        self._hints_at = now
        for each in self._subscriptions:
            each.give_hints(self._hints)
            if "jobs" not in each.topics:
                continue
            if self._many_moved:
                each.give_listed(None, deleted=False)
            for job_id, row in self._moved.items():
                self._give_moved(each, job_id, row)
        self._hints.clear()
        self._moved.clear()
        self._many_moved = False

    def _give_moved(self, to: Subscription, job_id: str, row: ListedRow | None) -> None:
        seen = self._seen.get(job_id) if row is None else row
        if to.caller.role is Role.OPERATOR or (seen is not None and seen.shown_to(to.caller) is not None):
            to.give_listed(job_id, deleted=row is None)
        elif seen is None:
            to.give_listed(None, deleted=False)  # a job was deleted, whose owner nobody remembers

    def _wake_all(self) -> None:
        for each in self._subscriptions:
            each.watch.wake()


def _json(job: JobSummary) -> bytes:
    return job.model_dump_json().encode()
