"""What a worker tells a job's owner of an attempt: messages among the job's events, none of them twice in a row."""

import logging
import time

from store.rows.attempts import Batch, NewEvent
from worker.attempts.records import Records

_AGAIN_S = 60.0  # between two notices of the same trouble, as of a disk that is full now and then

logger = logging.getLogger(__name__)


class Notices:
    """One attempt's. Every method raises what `Records.record` raises."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._told: set[str] = set()
        self._troubles: set[str] = set()
        """What is wrong now and was told."""
        self._next: dict[str, float] = {}

    def tell(self, text: str, *, level: str = "warning") -> None:
        row, _ = self._records.read()
        event = NewEvent("message", {"level": level, "text": text}, time.time_ns() // 1000)
        self._records.record(Batch(offsets=row.offsets, events=[event]))

    def once(self, text: str, *, level: str = "warning") -> None:
        if text not in self._told:
            self.tell(text, level=level)
            self._told.add(text)

    def trouble(self, what: str, text: str) -> None:
        """`what` is wrong: told once until it is over, and not again within a minute."""
        logger.warning("%s", text)
        if what not in self._troubles and time.monotonic() >= self._next.get(what, 0.0):
            self.tell(text)
            self._troubles.add(what)
            self._next[what] = time.monotonic() + _AGAIN_S

    def over(self, what: str, text: str) -> None:
        """`what` is right again: told where the trouble was."""
        if what in self._troubles:
            self._troubles.discard(what)
            self.tell(text, level="info")
