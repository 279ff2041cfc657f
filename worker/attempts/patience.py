"""Repeats calls to the store while the database is away."""

from collections.abc import Callable
import logging
import threading
import time
from typing import TypeVar

from torchyard.contract.errors import Unavailable
from worker.outage import level_of

T = TypeVar("T")

_FIRST_DELAY_S, _MAX_DELAY_S = 0.25, 10.0

logger = logging.getLogger(__name__)


class Patience:
    """Waits for the database on behalf of one attempt, until `leaving` is set. `name` is that of the job in the log.

    `waits` is called before each wait.
    """

    def __init__(self, name: str, *, leaving: threading.Event, waits: Callable[[], object] = lambda: None) -> None:
        self._name = name
        self._waits = waits
        self._leaving = leaving
        self._outage_s = 0.0

    def call(self, operation: Callable[[], T]) -> T:
        """Returns what the operation does, which is repeated after Unavailable. Raises this when `leaving` is set."""
        delay, failed_at = _FIRST_DELAY_S, None
        while True:
            try:
                answer = operation()
            except Unavailable as error:
                failed_at = failed_at or time.monotonic()
                logger.log(level_of(error), "%s: %s; trying again in %.1f s", self._name, error.message, delay)
                self._waits()
                if self._leaving.wait(delay):
                    raise
                delay = min(delay * 2, _MAX_DELAY_S)
            else:
                if failed_at is not None:
                    self._outage_s = max(self._outage_s, time.monotonic() - failed_at)
                return answer

    def take_outage_s(self) -> float:
        """Returns the longest outage since the last call, in seconds. 0.0 if the database always answered."""
        outage_s, self._outage_s = self._outage_s, 0.0
        return outage_s
