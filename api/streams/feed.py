"""Reads what changes, once for all streams of several jobs of the process, and gives each stream its part."""

import asyncio
from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from anyio import to_thread

from api.present import jobs as present
from api.streams.lists import ListChanges
from api.streams.live import Live, Watch
from api.streams.rows import ChangedRows
from api.streams.subscription import ListedRow, Subscription
from api.streams.watched import WatchedJobs
from store.announcement import QUEUE, WORKERS, job_of_row
from store.ids import is_id
from store.jobs import listing, timeline
from store.jobs.facts import Head, ListedJob
from store.store import Store
from store.team.callers import Caller
from torchyard.contract.errors import Unavailable
from torchyard.contract.telemetry.views import StreamTopic

_PAUSE_S = 0.5
"""Seconds before the database is asked again when it did not answer."""
_TOPICS: Mapping[str, StreamTopic] = {QUEUE: "queue", WORKERS: "workers"}


@dataclass(frozen=True)
class _Due:
    """What to read now: positions of jobs, and rows, each with whether its position in lists changed."""

    positions: Collection[str]
    rows: Mapping[str, bool]


@dataclass(frozen=True)
class _News:
    """What was read. Jobs that do not exist are left out."""

    heads: Mapping[str, Head]
    rows: Mapping[str, ListedRow]


class Feed:
    """The positions of the jobs that streams watch, and what changes in lists. One task reads for all of them.

    Call it in the event loop.
    """

    def __init__(self, store: Store, live: Live) -> None:
        self._store = store
        self._live = live
        self._subscriptions: set[Subscription] = set()
        self._watched = WatchedJobs()
        self._rows = ChangedRows(self._watched)
        self._lists = ListChanges()
        self._reader: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._polled_at = 0.0

    @contextmanager
    def subscribe(
        self, heads: Mapping[str, Head], *, topics: frozenset[StreamTopic], caller: Caller
    ) -> Generator[Subscription]:
        """Adds a stream for the duration of the block. `heads`: of the jobs that it watches, as they were just now."""
        with self._live.watch_access(heads, user=caller.name) as watch:
            mine = Subscription(watch, caller, topics, set(heads))
            self._subscriptions.add(mine)
            self._watched.add(heads)
            for job_id in heads:
                self._rows.note(job_id)
            self._start()
            try:
                yield mine
            finally:
                self._subscriptions.discard(mine)
                self._forget(heads)

    def position(self, job_id: str) -> int | None:
        """Returns the position up to which a watched job can be read, None if it was deleted."""
        return self._watched.position(job_id)

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
        """Forgets those of the jobs that no stream watches any more."""
        still = set[str]().union(*(other.jobs for other in self._subscriptions))
        self._watched.remove(set(job_ids) - still)
        if not self._subscriptions and self._reader is not None:
            self._reader.cancel()
            self._reader = None
            self._rows.clear()
            self._lists.clear()

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        with self._live.hear(self._hear) as watch:
            while not watch.ended:
                await self._wait(watch)
                now = clock()
                due = _Due(self._watched.take_due(now), self._rows.take_due(now))
                try:
                    news = await to_thread.run_sync(self._read, due) if due.positions or due.rows else _News({}, {})
                except Unavailable:
                    for job_id in due.positions:
                        self._watched.note(job_id)
                    self._rows.note_again(due.rows)
                    await asyncio.sleep(_PAUSE_S)
                    continue
                self._give_heads(due, news)
                self._give_rows(due, news)
                self._lists.tell(self._subscriptions, now=clock())

    def _hear(self, name: str | None) -> None:
        """Notes what was announced."""
        if name is None:
            self._note_everything()
        elif name in _TOPICS:
            self._lists.note_topic(_TOPICS[name])
        elif (job_id := job_of_row(name)) is not None:
            self._note_row(job_id, moved=True)
        elif is_id(name, "job"):
            self._watched.note(name)
            self._note_row(name, moved=False)
        else:
            return
        self._woken.set()

    def _note_row(self, job_id: str, *, moved: bool) -> None:
        is_shown = job_id in self._watched or any("jobs" in each.topics for each in self._subscriptions)
        if is_shown and not self._rows.note(job_id, moved=moved):
            self._lists.note_unnamed()

    def _note_everything(self) -> None:
        """Notes that anything may have changed."""
        self._watched.note_all()
        for job_id in self._watched.ids():
            self._rows.note(job_id)
        self._lists.note_all()

    async def _wait(self, watch: Watch) -> None:
        """Returns when something is due, and after some seconds in any case, as an announcement may be lost."""
        clock = asyncio.get_running_loop().time
        while (due_at := min(self._watched.due_at, self._rows.due_at, self._lists.due_at)) > (now := clock()):
            poll_at = self._polled_at + watch.longest_wait_s
            if poll_at <= now:
                self._polled_at = now
                self._watched.note_all()
                if watch.polls and self._lists.are_old(now):
                    self._note_everything()
                continue
            self._woken.clear()
            try:
                async with asyncio.timeout(min(due_at, poll_at) - now):
                    await self._woken.wait()
            except TimeoutError:
                pass

    def _read(self, due: _Due) -> _News:
        with self._store.read() as session:
            heads = timeline.heads_of(session, due.positions) if due.positions else {}
            listed = listing.list_some(session, due.rows)
        return _News(heads, {job.id: _row(job) for job in listed})

    def _give_heads(self, due: _Due, news: _News) -> None:
        for job_id in due.positions:
            head = news.heads.get(job_id)
            if not self._watched.update(job_id, head):
                continue
            self._rows.note(job_id)  # if the job was deleted, the read of its row tells
            if head is not None:
                self._wake(job_id)

    def _give_rows(self, due: _Due, news: _News) -> None:
        for job_id, moved in due.rows.items():
            row = news.rows.get(job_id)
            if row is None:
                self._give_deleted(job_id)
            else:
                self._rows.remember(row)
                for each in self._subscriptions:
                    each.give_row(row)
            if moved:
                self._lists.note_job(job_id, row=self._rows.last(job_id), deleted=row is None)

    def _give_deleted(self, job_id: str) -> None:
        self._watched.remove([job_id])
        for each in self._subscriptions:
            if job_id in each.jobs:
                each.give_deleted(job_id)

    def _wake(self, job_id: str) -> None:
        for each in self._subscriptions:
            if job_id in each.jobs:
                each.watch.wake()

    def _wake_all(self) -> None:
        for each in self._subscriptions:
            each.watch.wake()


def _row(job: ListedJob) -> ListedRow:
    whole = present.encoded_summary(job, starred=False)
    starred = present.encoded_summary(job, starred=True) if job.starred_by else None
    return ListedRow(job, whole, starred, present.encoded_withheld(job))
