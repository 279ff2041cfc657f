"""Messages of the worker to a job's owner about an attempt. They are events of the job."""

import logging
import time

from store.worker.records import NewEvent
from worker.attempts.records import AttemptRecords

NOTICE_INTERVAL_S = 60.0
"""The shortest time between two notices of the same problem, such as a disk that is full now and then."""

logger = logging.getLogger(__name__)


class Notices:
    """The notices about one attempt. Every method raises what `AttemptRecords.record_event` raises."""

    def __init__(self, records: AttemptRecords) -> None:
        self._records = records
        self._sent: set[str] = set()
        self._problems: set[str] = set()
        """The topics whose problem was reported and goes on."""
        self._next_report: dict[str, float] = {}

    def send(self, text: str, *, level: str = "warning") -> None:
        self._records.record_event(NewEvent("message", {"level": level, "text": text}, time.time_ns() // 1000))

    def send_once(self, text: str, *, level: str = "warning") -> None:
        if text not in self._sent:
            self.send(text, level=level)
            self._sent.add(text)

    def report_problem(self, topic: str, text: str) -> None:
        """Sends `text` unless the problem of this topic was reported already, or within the last minute."""
        logger.warning("%s", text)
        if topic not in self._problems and time.monotonic() >= self._next_report.get(topic, 0.0):
            self.send(text)
            self._problems.add(topic)
            self._next_report[topic] = time.monotonic() + NOTICE_INTERVAL_S

    def report_recovery(self, topic: str, text: str) -> None:
        """Sends `text` if a problem of this topic was reported and goes on."""
        if topic in self._problems:
            self._problems.discard(topic)
            self.send(text, level="info")
