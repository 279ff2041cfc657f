"""Limits the requests and open streams of one caller in this process. Call everything here in the event loop."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
import math
import time

from torchyard.contract.errors import TooManyRequests

_MOST_KEYS = 10_000


@dataclass
class _Bucket:
    """The tokens that were left at the time `at`."""

    tokens: float
    at: float


class Rates:
    """A token bucket for each key: `burst` calls at once, and `per_second` calls in the long run.

    Of more than 10,000 keys, the ones that were not used for the longest time are forgotten.
    """

    def __init__(self, *, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, key: str, *, advice: str) -> None:
        """Counts one call. Raises TooManyRequests, whose message begins with `advice`."""
        now = self._clock()
        bucket = self._buckets.setdefault(key, _Bucket(self._burst, now))
        self._buckets.move_to_end(key)
        if len(self._buckets) > _MOST_KEYS:
            self._buckets.popitem(last=False)
        bucket.tokens = min(self._burst, bucket.tokens + (now - bucket.at) * self._per_second)
        bucket.at = now
        if bucket.tokens < 1:
            seconds = math.ceil((1 - bucket.tokens) / self._per_second)
            raise TooManyRequests(f"{advice}; try again in {seconds} s", retry_after=seconds)
        bucket.tokens -= 1


class OpenStreams:
    """Counts open streams and waiting requests: at most `most` for each key."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: Counter[str] = Counter()

    @contextmanager
    def open(self, key: str) -> Generator[None]:
        """Counts one stream for the duration of the block. Raises TooManyRequests."""
        if self._open[key] >= self._most:
            raise TooManyRequests(f"have at most {self._most} streams and waiting requests open; end one of them")
        self._open[key] += 1
        try:
            yield
        finally:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]
