"""Runs the periodic duties of one thread."""

from collections.abc import Callable, Sequence
import logging

from torchyard.contract.errors import Unavailable
from worker.outage import level_of
from worker.troubles import Troubles

logger = logging.getLogger(__name__)


class Interval:
    """Tells when something that is done every `seconds` is due."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._next = 0.0

    def due(self, *, early: bool = False) -> bool:
        """Returns whether it is due, or is to be done `early`. If so, the next interval begins."""
        now = self._clock()
        if now < self._next and not early:
            return False
        self._next = now + self._seconds
        return True

    def rest(self, seconds: float) -> None:
        """Has it be due no earlier than in so many seconds."""
        self._next = max(self._next, self._clock() + seconds)

    def make_due(self) -> None:
        self._next = 0.0


Duty = tuple[str, Interval, Callable[[], object]]
"""Its name in a sentence, when it is due, and what it does."""


class Duties:
    """`database_was_away` is called when a duty fails because the database does not answer."""

    def __init__(
        self, schedule: Sequence[Duty], *, troubles: Troubles, database_was_away: Callable[[], object]
    ) -> None:
        self._schedule = schedule
        self._troubles = troubles
        self._database_was_away = database_was_away

    def run_due(self) -> None:
        """Runs the duties that are due. One that fails, whatever the error, is done again after its interval."""
        for work, interval, duty in self._schedule:
            if interval.due():
                try:
                    with self._troubles.noted(work):
                        duty()
                except Unavailable as error:
                    logger.log(level_of(error), "%s", error.message)
                    self._database_was_away()
