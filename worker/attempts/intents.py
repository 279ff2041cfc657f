"""What is wanted of an attempt: by the job's owner, from the store, and by the daemon, from its instructions."""

from collections.abc import Callable, Sequence
from datetime import timedelta
import logging
import time

from store.worker.records import AT_ONCE, AttemptFacts, ReachOrder, Wanted
from torchyard.contract.errors import Unavailable
from torchyard.contract.states import EndReason
from torchyard.contract.wire.units import LONGEST_STOP_GRACE
from worker.attempts.instructions import Instructions
from worker.attempts.phases import Intents, WantedStop
from worker.attempts.records import AttemptRecords
from worker.outage import level_of

READ_EVERY_S = 5.0
"""A change of an intent wakes the worker. This interval covers a wakeup that was lost."""
_URGENT_GRACE = timedelta(seconds=30)
"""The longest grace when the worker itself stops."""
_OVERTIME = timedelta(seconds=30)
"""So long after the time limit, by which a supervisor that works has ended the attempt, the worker does."""

logger = logging.getLogger(__name__)


class IntentReader:
    """Reads the intents of one attempt from the store: every few seconds, and at once after `recheck`."""

    def __init__(
        self,
        records: AttemptRecords,
        instructions: Instructions,
        *,
        longest_grace: timedelta = LONGEST_STOP_GRACE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._records = records
        self._instructions = instructions
        self._clock = clock
        self._longest_grace = longest_grace
        self._grace = _URGENT_GRACE
        self._time_left = timedelta.max
        """What the job's earlier attempts have left of its time limit."""
        self._wanted = Wanted()
        self._began_at: float | None = clock()
        """Since when the time limit counts. None: it does not yet."""
        self._next_read = 0.0

    @property
    def stacks_requested_at(self) -> int | None:
        """The time of the newest request for the stacks of the ranks, which may have been answered since."""
        return self._wanted.stacks_requested_at

    @property
    def reaches(self) -> Sequence[ReachOrder]:
        """What is to be done for the reaches of users, which may be done by now."""
        return self._wanted.reaches

    @property
    def used(self) -> timedelta:
        """What the attempt has used of its time limit: its age, or in a pool, where it may wait long, since it runs."""
        return timedelta(0) if self._began_at is None else timedelta(seconds=self._clock() - self._began_at)

    def note_running(self) -> None:
        """Has the time count from now on, unless it counts already."""
        if self._began_at is None:
            self._began_at = self._clock()

    def update(self, attempt: AttemptFacts) -> None:
        """Takes the job's limits and the intents from the attempt, which was just read."""
        waits = attempt.in_pool and not attempt.age
        self._began_at = None if waits else self._clock() - attempt.age.total_seconds()
        self._grace = min(attempt.stop_grace, self._longest_grace)
        self._time_left = attempt.time_left
        self._set_wanted(attempt.wanted)

    def recheck(self) -> None:
        """Has the next call of `intents` read them."""
        self._next_read = 0.0

    def intents(self) -> Intents:
        """Returns what is wanted now. Raises StaleClaim."""
        instructions = self._instructions
        if instructions.leaving.is_set():
            return Intents(detach=instructions.detach, abandon=instructions.abandon)
        self._read_if_due()
        wanted = self._wanted
        return Intents(stop=self._stop(), forced=wanted.end is EndReason.CANCELLED and wanted.grace == AT_ONCE)

    def _stop(self) -> WantedStop | None:
        wanted, instructions = self._wanted, self._instructions
        late = WantedStop(EndReason.TIME_LIMIT, timedelta(0)) if self.used - _OVERTIME > self._time_left else None
        reason = wanted.end or (EndReason.PREEMPTED if instructions.preempt else None)
        if reason is None:
            return late
        graces = [self._grace]
        if wanted.grace is not None:
            graces.append(wanted.grace)
        if instructions.urgent:
            graces.append(_URGENT_GRACE)
        return WantedStop(reason, min(graces)).combined(late)

    def _read_if_due(self) -> None:
        if self._clock() < self._next_read:
            return
        self._next_read = self._clock() + READ_EVERY_S
        try:
            self._set_wanted(self._records.wanted())
        except Unavailable as error:
            logger.log(level_of(error), "cannot read the intents of the job's owner: %s", error.message)

    def _set_wanted(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._next_read = self._clock() + READ_EVERY_S
