"""Wakes the watchers of jobs when a change is announced. All watchers of the process share one Redis subscription."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, aclosing, contextmanager
import logging

from starlette.concurrency import run_in_threadpool

from store import changes
from store.announcement import channel, is_channel, live_line
from store.redis import names as redis_names
from torchyard.contract.errors import Unavailable
from torchyard.contract.telemetry.views import LiveLine

_LONGEST_WAIT_S = 5.0
"""Longest wait of a watcher: an announcement may be lost."""
_POLL_S = 0.5
"""Longest wait of a watcher while Redis is unreachable."""
CHECK_S = 15.0
"""Seconds between two checks that a user may still watch, besides those that an announcement causes."""

_log = logging.getLogger(__name__)


class Watch:
    """A watcher of jobs, and of changes of who may read them."""

    def __init__(self, live: "Live") -> None:
        self._live = live
        self._changed = asyncio.Event()
        self._check_at = asyncio.get_running_loop().time() + CHECK_S
        self._lines: dict[tuple[str, int | None, str], LiveLine] = {}

    @property
    def longest_wait_s(self) -> float:
        """Seconds after which to look for changes although none was announced."""
        return _LONGEST_WAIT_S if self._live.subscribed else _POLL_S

    @property
    def polls(self) -> bool:
        """Whether changes are not announced at present."""
        return not self._live.subscribed

    @property
    def ended(self) -> bool:
        """Whether the service is stopping and the watcher should end."""
        return self._live.closed

    async def wait_for_change(self, *, within: float) -> None:
        """Returns when the job may have changed, at the latest after `within` seconds.

        A change since the previous call, or since the watch began, counts: read the job after each call.
        """
        if not self.ended:
            try:
                async with asyncio.timeout(min(within, self.longest_wait_s)):
                    await self._changed.wait()
            except TimeoutError:
                pass
        self._changed.clear()

    def is_check_due(self) -> bool:
        """Returns whether to check again that the user may watch the job; True once for each time that it is due."""
        now = asyncio.get_running_loop().time()
        if now < self._check_at:
            return False
        self._check_at = now + CHECK_S
        return True

    def show(self, line: LiveLine) -> None:
        """Keeps the newest text of an unfinished line, and wakes the watcher."""
        self._lines[line.job_id, line.rank, line.stream] = line
        self._changed.set()

    def take_lines(self) -> list[LiveLine]:
        """Returns the unfinished lines that came since the last call, each with its newest text."""
        lines, self._lines = list(self._lines.values()), {}
        return lines

    def wake(self, *, access_changed: bool = False) -> None:
        if access_changed:
            self._check_at = 0.0
        self._changed.set()


class Live:
    """The watchers of one process. The first watcher opens the connection to Redis."""

    def __init__(self, redis_url: str, *, service: Callable[[], str]) -> None:
        """`service` returns the service's id; it may wait for the database, and raises Unavailable."""
        self._url = redis_url
        self._service = service
        self._watches: defaultdict[str, set[Watch]] = defaultdict(set)
        self._open: set[Watch] = set()
        self._hearers: list[Callable[[str | None], None]] = []
        self._listener: asyncio.Task[None] | None = None
        self.subscribed = False
        """Whether the subscription to Redis is open."""
        self.announcements = 0
        """The number of announcements received."""
        self.closed = False

    def watch(self, job_id: str, *, user: str, lines: bool = False) -> AbstractContextManager[Watch]:
        """Watches a job, as a user, for the duration of the block. Call it in the event loop.

        `lines`: also its unfinished output lines. Raises the error that ended the listener, unless Redis was the
        cause.
        """
        shown = [_lines(job_id)] if lines else []
        return self._watch([job_id, *shown, channel(user), channel(job_id)])

    def watch_access(self, job_ids: Iterable[str], *, user: str) -> AbstractContextManager[Watch]:
        """Watches who may read the jobs, what the user may read, and unfinished output lines.

        Raises what `watch` does.
        """
        jobs = list(job_ids)
        return self._watch([*map(_lines, jobs), *map(channel, (user, *jobs))])

    def watch_rights(self, job_id: str, *, user: str) -> AbstractContextManager[Watch]:
        """Watches who may do what with the job, and what the user may do. Raises what `watch` does."""
        return self._watch([channel(user), channel(job_id)])

    @contextmanager
    def hear(self, hearer: Callable[[str | None], None]) -> Generator[Watch]:
        """Calls `hearer` with everything that is announced, and with None where announcements may have been lost.

        Raises what `watch` does.
        """
        self._hearers.append(hearer)
        try:
            with self._watch([]) as watch:
                yield watch
        finally:
            self._hearers.remove(hearer)

    @contextmanager
    def _watch(self, names: Sequence[str]) -> Generator[Watch]:
        self._start_listening()
        watch = Watch(self)
        self._open.add(watch)
        for name in names:
            self._watches[name].add(watch)
        try:
            yield watch
        finally:
            self._open.discard(watch)
            for name in names:
                self._watches[name].discard(watch)
                if not self._watches[name]:
                    del self._watches[name]

    def watched(self, job_id: str) -> int:
        """Returns the number of the job's watchers."""
        return len(self._watches.get(job_id, ()))

    def close(self) -> None:
        """Ends every watcher. Call it in the event loop."""
        self.closed = True
        if self._listener is not None:
            self._listener.cancel()
        self._wake_all()

    def _start_listening(self) -> None:
        if self._listener is not None and self._listener.done() and not self.closed:
            failed, self._listener = self._listener, None
            failed.result()
        if self._listener is None and not self.closed:
            self._listener = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        # Redis's client may swallow a cancellation while it connects, so `closed` is checked as well.
        while not self.closed:
            try:
                service = await run_in_threadpool(self._service)
                async with aclosing(changes.listen(self._url, channel=redis_names.changes(service))) as announcements:
                    async for name in announcements:
                        if self.closed:
                            return
                        self._announce(name)
            except Unavailable as error:
                if self.subscribed:
                    _log.warning("%s; watchers poll until it answers", error.message)
                self.subscribed = False
            await asyncio.sleep(_POLL_S)

    def _announce(self, name: str | None) -> None:
        if name is not None and (line := live_line(name)) is not None:
            for watch in self._watches.get(_lines(line.job_id), ()):
                watch.show(line)
            return
        self.announcements += 1
        for hearer in self._hearers:
            hearer(name)
        if name is None:
            self.subscribed = True
            self._wake_all(access_changed=True)  # a change before the subscription was not announced to it
            return
        for watch in self._watches.get(name, ()):
            watch.wake(access_changed=is_channel(name))

    def _wake_all(self, *, access_changed: bool = False) -> None:
        for watch in self._open:
            watch.wake(access_changed=access_changed)


def _lines(job_id: str) -> str:
    """Returns the name under which watchers of the job's unfinished lines are kept."""
    return f"lines:{job_id}"
