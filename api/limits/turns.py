"""Lets users take turns at a few threads, which do long reads a part at a time."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from torchyard.contract.errors import TooManyRequests

T = TypeVar("T")

THREADS = 3
"""Parts that run at once. More threads would slow down the requests that must be quick."""
THREADS_PER_USER = 2
READS_PER_USER = 1
"""Parts of one user's long reads, changes and bodies at once: two threads that compute hold up all requests for twice
as long."""
MOST_WAITING = 32
"""Most reads of one user that wait for their first turn."""
PATIENCE_S = 20.0
"""Longest wait for the first turn of a read."""
_RETRY_S = 2
_ADVICE = "send fewer at once, or try again"


class Together:
    """Counts the parts of a user in all `Turns` that are made with it. Call it in the event loop."""

    def __init__(self, *, at_once: int = READS_PER_USER) -> None:
        """`at_once`: the parts that a user may have in all of them."""
        self._at_once = at_once
        self._busy = Counter[str]()
        self._all: list[Turns] = []

    def add(self, turns: "Turns") -> None:
        self._all.append(turns)

    def may_begin(self, user: str) -> bool:
        return self._busy[user] < self._at_once

    def begin(self, user: str) -> None:
        self._busy[user] += 1

    def end(self, user: str, turns: "Turns") -> None:
        """Ends the user's part in `turns`. What waits in the others is next: none takes all of their time.

        Those that come last get it if nothing else of the user goes on at once.
        """
        self._busy[user] -= 1
        if not self._busy[user]:
            del self._busy[user]
        after = self._all.index(turns) + 1
        for each in (*self._all[after:], *self._all[:after]):
            if each.comes_last:
                asyncio.get_running_loop().call_soon(each.give)
            else:
                each.give()


class Turns:
    """Threads for parts of reads. Users take turns. Call it in the event loop."""

    def __init__(
        self,
        *,
        per_user: int = THREADS_PER_USER,
        threads: int = THREADS,
        patience_s: float = PATIENCE_S,
        together: Together | None = None,
        comes_last: bool = False,
    ) -> None:
        """`per_user`: the threads that one user may have at once. `patience_s`: the longest wait for a first turn.

        `together`: counts a user's threads instead of `per_user`, those in other `Turns`, too. `comes_last`: a user's
        parts in the others go before those in this one.
        """
        self._together = together or Together(at_once=per_user)
        self._together.add(self)
        self.comes_last = comes_last
        self._most = threads
        self.patience_s = patience_s
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="reads")
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """By user, in the order in which they are next."""
        self._busy = 0

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def begin(self, user: str, part: Callable[[], T]) -> T:
        """Runs the first part of a read in a thread. Raises TooManyRequests, and what `part` does."""
        if len(self._waiting.get(user, ())) >= MOST_WAITING:
            raise TooManyRequests(
                f"{user} has {MOST_WAITING} waiting requests: {_ADVICE} in {_RETRY_S} s",
                retry_after=_RETRY_S,
            )
        if not self._take(user):
            try:
                async with asyncio.timeout(self.patience_s):
                    await self._turn(user, first=True)
            except TimeoutError:
                late = f"this read of {user} had no turn within {self.patience_s:g} s, because others came first"
                raise TooManyRequests(f"{late}: {_ADVICE}", retry_after=_RETRY_S) from None
        return await self._run(user, part)

    async def go_on(self, user: str, part: Callable[[], T]) -> T:
        """Runs the next part of a read that has begun, before the user's other reads. Raises what `part` does."""
        if not self._take(user):
            await self._turn(user, first=False)
        return await self._run(user, part)

    def _take(self, user: str) -> bool:
        """Takes a free thread, if nobody waits for one. Returns whether it did."""
        if self._waiting or self._busy >= self._most or not self._together.may_begin(user):
            return False
        self._begin(user)
        return True

    def _begin(self, user: str) -> None:
        self._busy += 1
        self._together.begin(user)

    async def _turn(self, user: str, *, first: bool) -> None:
        turn = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(user, deque())
        if first:
            waiting.append(turn)
        else:
            waiting.appendleft(turn)
        self.give()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(user, turn)
            else:
                self._end(user)
            raise

    def give(self) -> None:
        """Gives free threads to those who are next."""
        while self._busy < self._most:
            user = next((each for each in self._waiting if self._together.may_begin(each)), None)
            if user is None:
                return
            turn = self._waiting[user].popleft()
            if self._waiting[user]:
                self._waiting.move_to_end(user)
            else:
                del self._waiting[user]
            if not turn.done():
                self._begin(user)
                turn.set_result(None)

    def _forget(self, user: str, turn: asyncio.Future[None]) -> None:
        with suppress(KeyError, ValueError):
            self._waiting[user].remove(turn)
            if not self._waiting[user]:
                del self._waiting[user]

    async def _run(self, user: str, part: Callable[[], T]) -> T:
        loop, context = asyncio.get_running_loop(), copy_context()
        outcome: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            try:
                tell = partial(outcome.set_result, context.run(part))
            except BaseException as error:  # noqa: BLE001 - whoever waits raises it
                tell = partial(outcome.set_exception, error)
            with suppress(RuntimeError):  # the loop is closed: the service has stopped
                loop.call_soon_threadsafe(self._finish, user, outcome, tell)

        # The turn lasts as long as its thread is busy, also if nobody waits for the result any more.
        self._threads.submit(run)
        return await outcome

    def _finish(self, user: str, outcome: asyncio.Future[Any], tell: Callable[[], None]) -> None:
        if not outcome.done():
            tell()  # before others have their turn: whoever waits for it may go on at once
        self._end(user)

    def _end(self, user: str) -> None:
        self._busy -= 1
        self._together.end(user, self)
