"""Warns of running jobs that are slow, once for each cause, so that nobody has to ask."""

from store.attempts import slowness
from store.jobs import events
from store.store import Store
from torchyard.contract.advice import symptoms

_HINT = "`torchyard why` says what to do"


class Warnings:
    """A duty: looks at the jobs that have run for a while, and adds a message of level warning to those that are slow.

    The message tells the job's targets, too.
    """

    interval_s = 60.0

    def __init__(self, store: Store) -> None:
        self._store = store

    def run(self) -> bool:
        """Judges all running jobs. Returns False: the next look is after the interval. Raises Unavailable."""
        with self._store.read() as session:
            slow = [
                (job, cause, text)
                for job in slowness.list_running(session)
                for cause, text in symptoms(job.values, ranks=job.ranks, used=job.used).items()
            ]
            warned = events.find_causes(session, {job.job_id for job, _, _ in slow}) if slow else set()
        for job, cause, text in slow:
            if (job.job_id, cause) not in warned:
                with self._store.write("warn") as session:
                    slowness.warn(session, job.job_id, attempt=job.attempt, cause=cause, text=f"{text}; {_HINT}")
        return False
