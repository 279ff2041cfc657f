"""What a worker does now and then beside its jobs: it says that it lives, sweeps, and looks whether it is drained."""

from collections.abc import Callable
import contextlib
import logging
import os
from pathlib import Path

from store.commands import placement, workers
from store.rows import workers as rows
from store.rows.attempts import Claim
from store.store import Store
from torchyard.contract.errors import Unavailable
from worker.cleanup.housekeeper import Housekeeper
from worker.devices.watch import DeviceWatch
from worker.leases import Leases

_RENEW_S = 10.0
_BEAT_S = 5.0
_SWEEP_S = 10.0
_DRAIN_S = 2.0

logger = logging.getLogger(__name__)


class Every:
    """Says when it is time again."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._next = 0.0

    def due(self, *, early: bool = False) -> bool:
        now = self._clock()
        if now < self._next and not early:
            return False
        self._next = now + self._seconds
        return True

    def hurry(self) -> None:
        self._next = 0.0


class Duties:
    """`identity` is the file whose time tells a health check that this worker lives."""

    def __init__(
        self,
        worker_id: str,
        *,
        name: str,
        identity: Path,
        store: Store,
        devices: DeviceWatch,
        leases: Leases,
        housekeeper: Housekeeper,
        clock: Callable[[], float],
    ) -> None:
        self.drained = False
        """Whether the worker is to take no jobs and give back those that it runs."""
        self._worker_id = worker_id
        self._name = name
        self._identity = identity
        self._store = store
        self._devices = devices
        self._leases = leases
        self._housekeeper = housekeeper
        self._drain = Every(_DRAIN_S, clock)
        self._timetable = (
            (Every(_RENEW_S, clock), leases.renew),
            (Every(_BEAT_S, clock), self._beat),
            (Every(_SWEEP_S, clock), self._sweep),
            (self._drain, self._look_for_drain),
        )

    def register(self) -> list[Claim]:
        """Says that this worker is there, and answers the attempts that are its own. Raises Unavailable."""
        views = [view.model_dump(mode="json") for view in self._devices.first_look()]
        return workers.register(self._store, self._worker_id, name=self._name, devices=views)

    def stop(self, timeout: float) -> None:
        """Breaks off what is under way. Waits at most `timeout` seconds."""
        self._housekeeper.stop(timeout)

    def work(self) -> None:
        """Does what is due. A database that is away is waited for, turn by turn."""
        for every, duty in self._timetable:
            if every.due():
                try:
                    duty()
                except Unavailable as error:
                    logger.warning("%s", error.message)
                    self._leases.database_was_away()

    def hurry(self) -> None:
        """Somebody may have asked the worker for something."""
        self._drain.hurry()

    def _beat(self) -> None:
        views = [view.model_dump(mode="json") for view in self._devices.look()]
        starts = self._devices.starts().model_dump(mode="json")
        workers.heartbeat(self._store, self._worker_id, devices=views, starts=starts)
        with contextlib.suppress(OSError):
            os.utime(self._identity)

    def _look_for_drain(self) -> None:
        with self._store.read() as session:
            drained = rows.is_draining(session, self._worker_id)
        if drained != self.drained:
            self.drained = drained
            logger.info("this worker %s", "drains: it gives its jobs back" if drained else "takes jobs again")

    def _sweep(self) -> None:
        self._leases.rescue_expired()
        if self._store.rebuild_queue():
            self._store.wake_workers()
        placement.delete_unused_reasons(self._store)
        self._housekeeper.sweep()
