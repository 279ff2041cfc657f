"""What is wanted of an attempt: by its job's owner, from the rows, and by the daemon, from its orders."""

from datetime import timedelta
import logging
import time

from store.db.tables import Job
from store.rows import intents
from torchyard.contract.errors import Unavailable
from torchyard.contract.job import EndReason
from worker.attempts.lifecycle import Intents, Stop
from worker.attempts.orders import Orders
from worker.attempts.records import Records

_EVERY_S = 5.0
"""A wish rings the bell. This is for a ring that was lost."""
_HURRY = timedelta(seconds=30)
"""The longest grace where the worker itself stops."""

logger = logging.getLogger(__name__)


class Wishes:
    """Reads what is wanted of one attempt: from the rows every few seconds, and at once after `look`."""

    def __init__(self, records: Records, orders: Orders) -> None:
        self.grace = _HURRY
        """The job's own, once it is known."""
        self._records = records
        self._orders = orders
        self._wanted: EndReason | None = None
        self._next = 0.0

    def learn(self, job: Job) -> None:
        """The job as it was just read."""
        self.grace = job.stored_spec.stop_grace
        self._learn(intents.requested_stop(job))

    def look(self) -> None:
        self._next = 0.0

    def intents(self) -> Intents:
        """Raises StaleClaim."""
        orders = self._orders
        if orders.gone.is_set():
            return Intents(detach=orders.detach, abandon=orders.abandon)
        self._read()
        reason = self._wanted or (EndReason.PREEMPTED if orders.preempt else None)
        if reason is None:
            return Intents()
        return Intents(stop=Stop(reason, min(self.grace, _HURRY) if orders.hurry else self.grace))

    def _read(self) -> None:
        if self._wanted is EndReason.CANCELLED or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _EVERY_S
        try:
            self._learn(self._records.wanted_end())
        except Unavailable as error:
            logger.warning("cannot look for a cancel: %s", error.message)

    def _learn(self, wanted: EndReason | None) -> None:
        self._wanted = wanted
        self._next = time.monotonic() + _EVERY_S
