"""The periodic duties of a worker: its heartbeat, its leases, the sweep, and the check whether it drains."""

from collections.abc import Callable
import contextlib
import logging
import os
from pathlib import Path

from store.commands import placement
from store.queries import workers as queries
from store.store import Store
from torchyard.contract.errors import Unavailable
from worker.cleanup.housekeeper import Housekeeper
from worker.leases import Leases
from worker.registration import Registration
from worker.troubles import Troubles

_RENEW_INTERVAL_S = 10.0
_HEARTBEAT_INTERVAL_S = 5.0
_SWEEP_INTERVAL_S = 10.0
_DRAIN_CHECK_INTERVAL_S = 2.0

logger = logging.getLogger(__name__)


class Interval:
    """Tells when something that is done every `seconds` is due."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._next = 0.0

    def due(self, *, early: bool = False) -> bool:
        """Returns whether it is due, or is to be done `early`. If so, the next interval begins."""
        now = self._clock()
        if now < self._next and not early:
            return False
        self._next = now + self._seconds
        return True

    def rest(self, seconds: float) -> None:
        """Has it be due no earlier than in so many seconds."""
        self._next = max(self._next, self._clock() + seconds)

    def make_due(self) -> None:
        self._next = 0.0


class Duties:
    """`identity` is the file whose modification time tells a health check that this worker is alive."""

    def __init__(
        self,
        worker_id: str,
        *,
        identity: Path,
        store: Store,
        registration: Registration,
        leases: Leases,
        housekeeper: Housekeeper,
        troubles: Troubles,
        clock: Callable[[], float],
    ) -> None:
        self.draining = False
        """Whether the worker must take no jobs and give back those that it runs."""
        self._worker_id = worker_id
        self._identity = identity
        self._store = store
        self._registration = registration
        self._leases = leases
        self._housekeeper = housekeeper
        self._troubles = troubles
        self._drain_interval = Interval(_DRAIN_CHECK_INTERVAL_S, clock)
        self._schedule = (
            ("the renewal of leases", Interval(_RENEW_INTERVAL_S, clock), leases.renew),
            ("the heartbeat", Interval(_HEARTBEAT_INTERVAL_S, clock), self._send_heartbeat),
            ("the sweep", Interval(_SWEEP_INTERVAL_S, clock), self._sweep),
            ("the look whether this worker drains", self._drain_interval, self._check_drain),
        )

    def stop(self, timeout: float) -> None:
        """Stops a pass of the housekeeper. Waits at most `timeout` seconds."""
        self._housekeeper.stop(timeout)

    def run_due(self) -> None:
        """Runs the duties that are due. One that fails, whatever the error, is done again after its interval."""
        for work, interval, duty in self._schedule:
            if interval.due():
                try:
                    with self._troubles.noted(work):
                        duty()
                except Unavailable as error:
                    logger.warning("%s", error.message)
                    self._leases.database_was_away()

    def check_drain_soon(self) -> None:
        """Has the next `run_due` check whether the worker drains."""
        self._drain_interval.make_due()

    def _send_heartbeat(self) -> None:
        self._registration.report()
        with contextlib.suppress(OSError):
            os.utime(self._identity)

    def _check_drain(self) -> None:
        draining = queries.is_draining(self._store, self._worker_id)
        if draining != self.draining:
            self.draining = draining
            logger.info("this worker %s", "drains and gives its jobs back" if draining else "takes jobs again")

    def _sweep(self) -> None:
        self._leases.rescue_expired()
        self._leases.continue_lost()
        if self._store.sweep_line():
            self._store.wake_workers()
        placement.delete_unused_reasons(self._store)
        placement.free_idle_places(self._store)
        self._housekeeper.sweep()
