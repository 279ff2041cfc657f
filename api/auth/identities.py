"""Caches the identities of tokens for a few seconds. Redis announces each change of users, roles and tokens."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
import logging
import threading
import time

from starlette.concurrency import run_in_threadpool

from store import changes
from store.redis import names as redis_names
from store.team.facts import Identity, digest_of
from torchyard.contract.errors import Unavailable

_LASTING_S = 5.0
"""The longest that an identity is remembered: an announcement may be lost, with the program that had to make it."""
_MOST = 10_000
"""Identities that are remembered at once."""
_RETRY_S = 0.5

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Remembered:
    identity: Identity
    until: float


class Identities:
    """The cached identities of valid tokens, by digests of the tokens. Call all but `forget` in the event loop."""

    def __init__(
        self, redis_url: str, *, service: Callable[[], str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`service` returns the service's id; it may wait for the database, and raises Unavailable."""
        self._url = redis_url
        self._service = service
        self._clock = clock
        self._lock = threading.Lock()
        self._found: dict[str, _Remembered] = {}
        self._subscribed = False
        self._listener: asyncio.Task[None] | None = None
        self._closed = False
        self.changes = 0
        """How often everything was forgotten."""

    def find(self, token: str) -> Identity | None:
        """Returns whose token this is, if that is remembered. The first call begins to listen to announcements."""
        if not self._closed and (self._listener is None or self._listener.done()):
            self._listener = asyncio.create_task(self._listen())
        known = self._found.get(digest_of(token))
        return known.identity if known is not None and self._clock() < known.until else None

    def remember(self, token: str, identity: Identity, *, read_at: int) -> None:
        """Keeps whose token this is. `read_at`: the `changes` before it was read."""
        left_s = _LASTING_S if identity.left_us is None else min(_LASTING_S, identity.left_us / 1e6)
        known = _Remembered(identity, self._clock() + left_s)
        with self._lock:
            if not self._subscribed or self.changes != read_at:
                return  # a change since then may not be in what was read
            if len(self._found) >= _MOST:
                self._found.clear()
            self._found[digest_of(token)] = known

    def forget(self, *, subscribed: bool | None = None) -> None:
        """Forgets everything, as somebody may do something else now. Any thread may call it.

        `subscribed`: whether later changes are announced to this process, if that may be different now.
        """
        with self._lock:
            self._found.clear()
            self.changes += 1
            if subscribed is not None:
                self._subscribed = subscribed

    def close(self) -> None:
        """Ends the listener."""
        self._closed = True
        if self._listener is not None:
            self._listener.cancel()

    async def _listen(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        # Redis's client may swallow a cancellation while it connects, so it is asked for.
        while not task.cancelling():
            try:
                service = await run_in_threadpool(self._service)
                announced = changes.listen(self._url, channel=redis_names.access(service))
                async with aclosing(announced) as names:
                    async for _ in names:  # the first stands for what was announced before it listened
                        if task.cancelling():
                            return
                        self.forget(subscribed=True)
            except Unavailable as error:
                if self._subscribed:
                    _log.warning("%s; each request with a personal token asks the database meanwhile", error.message)
            finally:
                self.forget(subscribed=False)
            await asyncio.sleep(_RETRY_S)
