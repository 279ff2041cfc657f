"""Tells remote workers what wakes those on hosts of the service. All of them share one subscription of the process."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from itertools import count
import logging

from starlette.concurrency import run_in_threadpool

from api.streams.events import HEARTBEAT, HEARTBEAT_S, encoded
from store import changes
from store.queue.announcing import LINE
from store.redis import names as redis_names
from torchyard.contract.errors import Unavailable

_AGAIN_S = 0.5
_ASKED = "asked"
_CHECKED = 4
"""Of so many comments one asks the database whose token it is: with many idle workers, that is most of their cost."""

_log = logging.getLogger(__name__)


class Wakeups:
    """Call it in the event loop."""

    def __init__(self, redis_url: str, *, service: Callable[[], str]) -> None:
        """`service` returns the service's id; it may wait for the database, and raises Unavailable."""
        self._url = redis_url
        self._service = service
        self._woken: dict[asyncio.Event, bool] = {}
        """Of each open stream, whether somebody has asked for something since its last event."""
        self._listener: asyncio.Task[None] | None = None
        self._is_subscribed = False
        self._closed = False

    async def events(self, check: Callable[[], Awaitable[bool]]) -> AsyncGenerator[bytes]:
        """Yields an event for what came since the one before, and a comment after 15 s without any.

        It ends when Redis goes away, when the service stops, and when `check`, which is called at every fourth comment,
        says that the worker is no longer one. The worker polls then.
        """
        woken = asyncio.Event()
        self._woken[woken] = False
        self._start()
        comments = count(1)
        try:
            yield HEARTBEAT
            while not self._closed:
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        await woken.wait()
                except TimeoutError:
                    if not self._is_subscribed or (next(comments) % _CHECKED == 0 and not await check()):
                        return
                    yield HEARTBEAT
                    continue
                asked, self._woken[woken] = self._woken[woken], False
                woken.clear()
                if not self._is_subscribed:
                    return
                yield encoded("wake", _ASKED if asked else LINE)
        finally:
            del self._woken[woken]

    def close(self) -> None:
        """Ends every stream."""
        self._closed = True
        if self._listener is not None:
            self._listener.cancel()
        for woken in self._woken:
            woken.set()

    def _start(self) -> None:
        if not self._closed and (self._listener is None or self._listener.done()):
            self._listener = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        while not self._closed:
            try:
                service = await run_in_threadpool(self._service)
                async with aclosing(changes.listen(self._url, channel=redis_names.wakeups(service))) as messages:
                    async for message in messages:
                        self._is_subscribed = True
                        self._wake(asked=message != LINE)
            except Unavailable as error:
                if self._is_subscribed:
                    _log.warning("%s; remote workers poll until it answers", error.message)
            self._is_subscribed = False
            self._wake(asked=False)
            await asyncio.sleep(_AGAIN_S)

    def _wake(self, *, asked: bool) -> None:
        for woken in self._woken:
            self._woken[woken] |= asked
            woken.set()
