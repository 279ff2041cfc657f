"""Tells that a controller runs: `torchyard doctor` and `/metrics` say when none has for a while."""

from store.cluster import controllers
from store.store import Store


class Heartbeat:
    """A duty. It is the last of a pass: what stops the others stops it, too."""

    interval_s = 10.0

    def __init__(self, store: Store) -> None:
        self._store = store

    def run(self) -> bool:
        with self._store.write("heartbeat") as session:
            controllers.report(session)
        return False
