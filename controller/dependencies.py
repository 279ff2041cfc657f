"""Lets jobs go on for which others have ended, or fails them."""

from store.jobs import dependencies_writes as dependencies
from store.store import Store


class Dependencies:
    """A `controller.duty.Duty`."""

    interval_s = 5.0

    def __init__(self, store: Store) -> None:
        self._store = store

    def run(self) -> bool:
        return dependencies.settle(self._store)
