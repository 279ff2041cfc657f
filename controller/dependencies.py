"""Lets jobs go on for which others have ended, or fails them."""

from store.jobs import dependencies, release
from store.store import Store


class Dependencies:
    """A `controller.duty.Duty`."""

    interval_s = 5.0

    def __init__(self, store: Store) -> None:
        self._store = store

    def run(self) -> bool:
        with self._store.read() as session:
            due = dependencies.due(session, limit=release.AT_ONCE)
        if not due:
            return False
        with self._store.write("dependencies") as session:
            return release.settle(session, due)
