"""Warns jobs that hold GPUs and do not use them, and then stops them."""

from datetime import timedelta

from store.attempts import idleness
from store.store import Store

_MOST_AT_ONCE = 100
"""Jobs of one run, so that the other duties wait for half a second at most."""


class Idle:
    """A duty: it compares how long each job has been idle with its `idle_timeout`."""

    interval_s = 30.0

    def __init__(self, store: Store, maximum: timedelta | None) -> None:
        """`maximum`: the longest that the operator allows, also for jobs submitted before. None: no limit."""
        self._store = store
        self._maximum = maximum

    def run(self) -> bool:
        """Looks at all jobs, and does what is due for some. Returns whether it is for others. Raises Unavailable."""
        with self._store.read() as session:
            idle = idleness.find_idle(session)
        due = [job.job_id for job in idle if job.due(self._maximum) is not None]
        for job_id in due[:_MOST_AT_ONCE]:
            with self._store.write("idle") as session:
                idleness.follow(session, job_id, maximum=self._maximum)
        return len(due) > _MOST_AT_ONCE
