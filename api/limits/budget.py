"""How much processor time a piece of work may take, whichever threads take turns at it."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
import time

SLICE_S = 0.005
"""After so much processor time, others have a turn."""


class Budget:
    """What is left to one piece of work. Only the thread whose turn it is may use it."""

    def __init__(
        self,
        processor_s: float,
        *,
        within_s: float,
        processor: Callable[[], float] = time.thread_time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`within_s`: the time from now on in which it must end, as it may wait for turns. `processor` is the clock of
        what a thread uses.
        """
        self.left_s = processor_s
        self._processor = processor
        self._clock = clock
        self._until = clock() + within_s

    @contextmanager
    def counted(self) -> Generator[None]:
        """Counts the processor time that this thread uses in the block."""
        began = self._processor()
        try:
            yield
        finally:
            self.left_s -= self._processor() - began

    def slices(self, work: Iterator[object], *, leaving_s: float = 0.0) -> Generator[None, None, bool]:
        """Goes on with the work until it ends, or no more than `leaving_s` is left. Returns whether it ended.

        It yields after each slice.
        """
        while self.left_s > leaving_s and self._clock() < self._until:
            with self.counted():
                if self._ends_in_slice(work):
                    return True
            yield
        return False

    def _ends_in_slice(self, work: Iterator[object]) -> bool:
        ended, until = object(), self._processor() + SLICE_S
        while self._processor() < until:
            if next(work, ended) is ended:
                return True
        return False
