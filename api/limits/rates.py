"""Limits the requests of one caller. Call everything here in the event loop."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
import math
import time
from typing import Generic, TypeVar

from store.shared_counts import LEAST_SHARE, Bucket, SharedCounts
from torchyard.contract.errors import TooManyRequests, Unavailable

T = TypeVar("T")

_MOST_KEYS = 10_000
_PORTION = 0.01
"""The share of a burst that a process takes from Redis at once: most requests then need no round trip."""


class Rates:
    """A token bucket for each key: `burst` calls at once, and `per_second` calls in the long run.

    Of more than 10,000 keys, the ones that were not used for the longest time are forgotten.
    """

    def __init__(self, *, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._buckets = _Newest[_Level](lambda: _Level(burst, clock()))

    def take(self, key: str, *, advice: str, cost: float = 1) -> None:
        """Counts a call, which stands for `cost` of them. Raises TooManyRequests, whose message begins with `advice`.

        A call that costs more than a burst needs a full bucket, and the next ones wait until that is made up for.
        """
        level = self._buckets.get(key)
        now = self._clock()  # not before a new bucket was made, which would have had to wait to be full
        level.tokens = min(self._burst, level.tokens + (now - level.at) * self._per_second)
        level.at = now
        needed = min(cost, self._burst)
        if level.tokens < needed:
            raise _too_many(advice, (needed - level.tokens) / self._per_second)
        level.tokens -= cost


class SharedRates:
    """The rate of each user, together in all processes of the service. Users who send at the same time share it.

    A process draws tokens from Redis in portions. While Redis is away it counts by itself, at a user's least share.
    """

    def __init__(
        self, counts: SharedCounts, *, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._counts = counts
        self._clock = clock
        self._bucket = Bucket(per_second, burst)
        self._portion = burst * _PORTION
        self._own = Rates(per_second=per_second * LEAST_SHARE, burst=burst)
        self._drawn = _Newest[_Tokens](_Tokens)

    async def take(self, user: str, *, advice: str, cost: float = 1) -> None:
        """Counts a call, which stands for `cost` of them. Raises TooManyRequests, which says `advice` first."""
        drawn = self._drawn.get(user)
        if drawn.left < cost:
            async with drawn.drawing:  # one at a time: a portion is enough for many
                if drawn.left < cost:
                    drawn.left += await self._draw(user, drawn, cost - drawn.left, advice)
                drawn.left -= cost
                return
        drawn.left -= cost

    async def _draw(self, user: str, drawn: "_Tokens", least: float, advice: str) -> float:
        if least >= drawn.refused and (wait_s := drawn.refused_until - self._clock()) > 0:
            raise _too_many(advice, wait_s)
        most = max(least, math.floor(self._portion))
        try:
            draw = partial(self._counts.draw, user, self._bucket, least=least, most=most)
            tokens = await asyncio.wrap_future(self._counts.thread.submit(draw))
        except Unavailable:
            self._own.take(user, advice=advice, cost=least)
            return least
        if not tokens.tokens:
            drawn.refused, drawn.refused_until = least, self._clock() + tokens.wait_s
            raise _too_many(advice, tokens.wait_s)
        return tokens.tokens


@dataclass
class _Level:
    """The tokens that were left at the time `at`."""

    tokens: float
    at: float


@dataclass
class _Tokens:
    """The tokens of a user that this process has drawn and not used."""

    left: float = 0
    refused: float = 0
    """So many were refused, and will be until the time `refused_until`."""
    refused_until: float = 0
    drawing: asyncio.Lock = field(default_factory=asyncio.Lock)


class _Newest(Generic[T]):
    """The values of the keys that were used last. `make` returns that of a new key."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._values: OrderedDict[str, T] = OrderedDict()

    def get(self, key: str) -> T:
        value = self._values.get(key)
        if value is None:
            value = self._values[key] = self._make()
            if len(self._values) > _MOST_KEYS:
                self._values.popitem(last=False)
        self._values.move_to_end(key)
        return value


def _too_many(advice: str, wait_s: float) -> TooManyRequests:
    seconds = max(1, math.ceil(wait_s))
    return TooManyRequests(f"{advice}; try again in {seconds} s", retry_after=seconds)
