"""Submits the jobs of schedules when they are due."""

from controller.duty import guarded
from store.schedules import runs
from store.schedules.runs import Due
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
        with self._store.read() as session:
            due = runs.list_due(session, limit=_AT_ONCE)
        done = [self._guarded(each) for each in due]
        return any(done)

    def _guarded(self, due: Due) -> bool:
        """Does one of them. If it fails, its owner is notified, and it is left for the next run."""
        return guarded(
            lambda: self._submit_due(due),
            of=f"schedule {due.schedule_id}",
            tell=lambda: self._note_failure(due.schedule_id),
        )

    def _submit_due(self, due: Due) -> bool:
        with self._store.write("run_schedule") as session:
            return runs.do_due(session, due)

    def _note_failure(self, schedule_id: str) -> None:
        with self._store.write("run_schedule") as session:
            runs.note_failure(session, schedule_id)
