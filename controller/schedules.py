"""Submits the jobs of schedules when they are due."""

import logging

from store.commands import schedules as commands
from store.facts.schedules import Due
from store.queries import schedules as queries
from store.store import Store
from torchyard.contract.errors import Unavailable

_AT_ONCE = 20
"""Of what is due, so much is done before other duties have their turn."""

_log = logging.getLogger(__name__)


class Schedules:
    """A duty."""

    interval_s = 2.0

    def __init__(self, store: Store) -> None:
        self._store = store

    def run(self) -> bool:
        """Submits what is due, each run once. Returns whether it did anything, so that it looks again."""
        found = queries.due(self._store, limit=_AT_ONCE)
        done = [self._guarded(due) for due in found]
        return any(done)

    def _guarded(self, due: Due) -> bool:
        try:
            return commands.do(self._store, due)
        except Unavailable:
            raise
        except Exception:  # noqa: BLE001 - the others go on
            _log.exception("schedule %s is left for the next run", due.schedule_id)
            self._tell(due)
            return False

    def _tell(self, due: Due) -> None:
        """Tells the owner that what was due failed."""
        try:
            commands.note_failure(self._store, due.schedule_id)
        except Unavailable:
            raise
        except Exception:  # noqa: BLE001 - the others go on
            _log.exception("schedule %s could not be told that it failed", due.schedule_id)
