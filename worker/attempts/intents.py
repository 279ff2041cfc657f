"""What is wanted of an attempt: by the job's owner, from the rows, and by the daemon, from its instructions."""

from datetime import timedelta
import logging
import time

from store.db.tables import Attempt, Job
from torchyard.contract.errors import Unavailable
from torchyard.contract.job import EndReason
from worker.attempts.instructions import Instructions
from worker.attempts.lifecycle import Intents, Stop
from worker.attempts.records import AttemptRecords, Wanted

_READ_EVERY_S = 5.0
"""A change of an intent wakes the worker. This interval covers a wakeup that was lost."""
_URGENT_GRACE = timedelta(seconds=30)
"""The longest grace when the worker itself stops."""

logger = logging.getLogger(__name__)


class IntentReader:
    """Reads the intents of one attempt from the rows: every few seconds, and at once after `recheck`."""

    def __init__(self, records: AttemptRecords, instructions: Instructions) -> None:
        self.grace = _URGENT_GRACE
        """The job's `stop_grace`, as soon as the job was read."""
        self._records = records
        self._instructions = instructions
        self._wanted = Wanted(None, None)
        self._next_read = 0.0

    @property
    def stacks_requested_at(self) -> int | None:
        """The time of the newest request for the stacks of the ranks, which may have been answered since."""
        return self._wanted.stacks_requested_at

    def update(self, row: Attempt, job: Job) -> None:
        """Takes the intents from rows that were just read."""
        self.grace = job.stored_spec.stop_grace
        self._set_wanted(Wanted.of(row, job))

    def recheck(self) -> None:
        """Has the next call of `intents` read the rows."""
        self._next_read = 0.0

    def intents(self) -> Intents:
        """Returns what is wanted now. Raises StaleClaim."""
        instructions = self._instructions
        if instructions.leaving.is_set():
            return Intents(detach=instructions.detach, abandon=instructions.abandon)
        self._read_if_due()
        reason = self._wanted.end or (EndReason.PREEMPTED if instructions.preempt else None)
        if reason is None:
            return Intents()
        return Intents(stop=Stop(reason, min(self.grace, _URGENT_GRACE) if instructions.urgent else self.grace))

    def _read_if_due(self) -> None:
        if time.monotonic() < self._next_read:
            return
        self._next_read = time.monotonic() + _READ_EVERY_S
        try:
            self._set_wanted(self._records.wanted())
        except Unavailable as error:
            logger.warning("cannot read the intents of the job's owner: %s", error.message)

    def _set_wanted(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._next_read = time.monotonic() + _READ_EVERY_S
