"""Submits the jobs of schedules when they are due."""

from controller.duty import guarded
from store.schedules import reads as queries
from store.schedules import writes as commands
from store.schedules.facts import Due
from store.store import Store

_AT_ONCE = 20
"""Of what is due, so much is done before other duties have their turn."""


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
        """Does one of them. If it fails, its owner is told, and it is left for the next run."""
        return guarded(
            lambda: commands.do(self._store, due),
            of=f"schedule {due.schedule_id}",
            tell=lambda: commands.note_failure(self._store, due.schedule_id),
        )
