"""Warns jobs that hold GPUs and do not use them, and then stops them."""

from datetime import timedelta

from store.commands import idleness as commands
from store.queries import idleness
from store.store import Store


class Idle:
    """A duty: it compares how long each job has been idle with its `idle_timeout`."""

    interval_s = 30.0

    def __init__(self, store: Store, maximum: timedelta | None) -> None:
        """`maximum`: the operator's, also for jobs that were submitted before. None: there is none."""
        self._store = store
        self._maximum = maximum

    def run(self) -> bool:
        """Looks at all jobs. Returns False: the next look is after the interval. Raises Unavailable."""
        for found in idleness.find(self._store):
            if found.due(self._maximum) is not None:
                commands.follow(self._store, found.job_id, maximum=self._maximum)
        return False
