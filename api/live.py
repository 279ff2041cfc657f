"""Who watches which job, and what wakes them: one subscription of the process, however many watch."""

import asyncio
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
import logging

from store import changes
from torchyard.contract.errors import Unavailable

_AT_LEAST_S = 5.0
"""An announcement may be lost: so often everybody looks anyway."""
_POLL_S = 0.5
"""So often while Redis is away."""

_log = logging.getLogger(__name__)


class Watch:
    """One watcher of one job."""

    def __init__(self, live: "Live") -> None:
        self._live = live
        self._changed = asyncio.Event()

    @property
    def over(self) -> bool:
        """Whether the service stops: the watcher should come to its end."""
        return self._live.closed

    async def changed(self, *, within: float) -> None:
        """Returns when it is worth looking at the job again, at the latest after `within` seconds.

        What changed since the last call, or since the watch began, counts: look after each call, never before.
        """
        longest = _AT_LEAST_S if self._live.hears else _POLL_S
        if not self.over:
            try:
                async with asyncio.timeout(min(within, longest)):
                    await self._changed.wait()
            except TimeoutError:
                pass
        self._changed.clear()

    def wake(self) -> None:
        self._changed.set()


class Live:
    """The watchers of one process. Connects to Redis when the first one comes."""

    def __init__(self, redis_url: str) -> None:
        self._url = redis_url
        self._watches: defaultdict[str, set[Watch]] = defaultdict(set)
        self._listener: asyncio.Task[None] | None = None
        self.hears = False
        """Whether announcements arrive."""
        self.heard = 0
        """How many have arrived."""
        self.closed = False

    @contextmanager
    def watch(self, job_id: str) -> Generator[Watch]:
        """Watches a job for as long as the block lasts. Only in the event loop.

        Raises what ended the listener, if that was none of Redis's failures.
        """
        self._start_listening()
        watch = Watch(self)
        self._watches[job_id].add(watch)
        try:
            yield watch
        finally:
            self._watches[job_id].discard(watch)
            if not self._watches[job_id]:
                del self._watches[job_id]

    def watched(self, job_id: str) -> int:
        """How many watch the job."""
        return len(self._watches.get(job_id, ()))

    def close(self) -> None:
        """Lets every watcher come to its end. Only in the event loop."""
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
        while True:
            try:
                async for job_id in changes.listen(self._url):
                    self.heard += 1
                    if job_id is None:
                        self.hears = True
                        self._wake_all()  # something may have changed unheard
                        continue
                    for watch in self._watches.get(job_id, ()):
                        watch.wake()
            except Unavailable as error:
                if self.hears:
                    _log.warning("%s; watchers poll meanwhile", error.message)
                self.hears = False
            await asyncio.sleep(_POLL_S)

    def _wake_all(self) -> None:
        for watches in self._watches.values():
            for watch in watches:
                watch.wake()
