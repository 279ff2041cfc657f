"""The duties of a controller, in the order in which one pass does them, and the small ones themselves."""

from datetime import timedelta

from controller.duty import Duty
from controller.notifications.deliver import Deliveries, FanOut, Upkeep
from controller.schedules import Schedules
from controller.settings import Settings
from controller.sweeps.duty import Sweeps
from store.attempts import idleness, slowness
from store.cluster import controllers
from store.jobs import dependencies, events, release
from store.store import Store
from torchyard.contract.advice import symptoms

MOST_IDLE_AT_ONCE = 100
"""Idle jobs of one run, so that the other duties wait for half a second at most."""
_HINT = "`torchyard why` says what to do"


def duties_of(store: Store, settings: Settings) -> list[Duty]:
    """Returns all that a controller does."""
    return [
        Dependencies(store),
        Schedules(store),
        Sweeps(store),
        Warnings(store),
        Idle(store, settings.max_idle_timeout),
        FanOut(store),
        Deliveries(store, settings),
        Upkeep(store),
        Heartbeat(store),
    ]


class Dependencies:
    """Lets jobs go on for which others have ended, or fails them."""

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


class Warnings:
    """Warns of running jobs that are slow, once for each cause, and notifies their targets."""

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


class Idle:
    """Warns jobs that hold GPUs and do not use them, and stops them after their `idle_timeout`."""

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
        for job_id in due[:MOST_IDLE_AT_ONCE]:
            with self._store.write("idle") as session:
                idleness.follow(session, job_id, maximum=self._maximum)
        return len(due) > MOST_IDLE_AT_ONCE


class Heartbeat:
    """Stores that a controller runs: `torchyard doctor` and `/metrics` say when none has for a while.

    It is the last of a pass: what stops the others stops it, too.
    """

    interval_s = 10.0

    def __init__(self, store: Store) -> None:
        self._store = store

    def run(self) -> bool:
        with self._store.write("heartbeat") as session:
            controllers.report(session)
        return False
