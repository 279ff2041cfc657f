"""Measures how much of the host's processors each attempt uses."""

from collections.abc import Callable, Collection, Mapping
import os
import threading
import time

from worker.host import process
from worker.host.attempt_key import AttemptKey


class Meter:
    """Compares the processor time of each attempt with that at the previous call."""

    def __init__(
        self,
        *,
        processors: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        seconds: Callable[[Mapping[AttemptKey, Collection[int]]], dict[AttemptKey, float]] = process.processor_seconds,
    ) -> None:
        self._processors = processors or os.cpu_count() or 1
        self._clock = clock
        self._seconds = seconds
        self._lock = threading.Lock()
        self._at = 0.0
        self._used: dict[AttemptKey, float] = {}

    def shares(self, roots: Mapping[AttemptKey, Collection[int]]) -> dict[AttemptKey, float]:
        """Returns the share of all processors, 0…1, of each attempt that was there at the previous call, too."""
        with self._lock:
            now, used = self._clock(), self._seconds(roots)
            possible = max(1e-9, (now - self._at) * self._processors)
            # Less than before: a process has ended whose time nobody waited for.
            spent = {key: max(0.0, used[key] - self._used[key]) for key in used.keys() & self._used.keys()}
            self._at, self._used = now, used
            return {key: min(1.0, round(seconds / possible, 4)) for key, seconds in spent.items()}
