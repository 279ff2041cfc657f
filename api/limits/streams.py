"""Limits the streams and waiting requests that one caller has open. Call everything here in the event loop."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from typing import ParamSpec

from store.shared_counts import HELD_FOR_S, SharedCounts
from torchyard.contract.errors import TooManyRequests, Unavailable

P = ParamSpec("P")

_RENEW_S = HELD_FOR_S / 3


class OpenStreams:
    """Counts open streams and waiting requests: at most `most` for each user, together in all processes of the service.

    Those of a process that has died count for some seconds more. While Redis is away, a process counts its own alone.
    """

    def __init__(self, most: int, counts: SharedCounts) -> None:
        self._most = most
        self._counts = counts
        self._thread = counts.thread
        """All that follows is changed by it alone."""
        self._open: Counter[str] = Counter()
        self._renewing: asyncio.Task[None] | None = None
        self._closed = False

    @asynccontextmanager
    async def open(self, user: str) -> AsyncGenerator[None]:
        """Counts one stream for the duration of the block. Raises TooManyRequests."""
        adding = self._thread.submit(self._add, user)
        try:
            await asyncio.wrap_future(adding)
        except asyncio.CancelledError:
            adding.add_done_callback(lambda done: self._undo(done, user))
            raise
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew())
        try:
            yield
        finally:
            self._submit(self._remove, user)

    def close(self) -> None:
        """Tells that nothing is open here any more: clients may go to another process, or to the next one."""
        if self._renewing is not None:
            self._renewing.cancel()
        self._closed = True
        with suppress(RuntimeError):  # it is closed already
            self._thread.submit(self._leave).result()

    def _add(self, user: str) -> None:
        wanted = self._open[user] + 1
        try:
            admitted = wanted <= self._most and self._counts.hold(user, held=wanted, most=self._most)
        except Unavailable:
            admitted = True
        if not admitted:
            raise TooManyRequests(
                f"have at most {self._most} streams and waiting requests open: end one of them, or try again in 1 s"
            )
        self._open[user] = wanted

    def _undo(self, done: Future[None], user: str) -> None:
        if not done.cancelled() and done.exception() is None:
            self._submit(self._remove, user)

    def _submit(self, change: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        if not self._closed:
            self._thread.submit(change, *args, **kwargs)

    def _remove(self, user: str) -> None:
        self._open[user] -= 1
        self._tell({user: self._open[user]})
        if not self._open[user]:
            del self._open[user]

    async def _renew(self) -> None:
        """Tells all again, from time to time: Redis may have forgotten it, and forgets it if this process dies."""
        while self._open:
            await asyncio.sleep(_RENEW_S)
            await asyncio.wrap_future(self._thread.submit(lambda: self._tell(dict(self._open))))

    def _leave(self) -> None:
        with suppress(Unavailable):
            self._counts.leave()

    def _tell(self, held: dict[str, int]) -> None:
        with suppress(Unavailable):
            self._counts.tell(held)
