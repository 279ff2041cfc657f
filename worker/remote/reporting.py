"""What a remote worker tells of itself, and is told: heartbeat and renewals in one request, about every ten seconds."""

from collections.abc import Callable, Collection, Sequence
import logging
import threading

from store.worker import wire
from store.worker.records import Orders
from torchyard.contract.cluster.devices import DeviceReport, StartsReport
from torchyard.contract.errors import Conflict, NotAuthorized, Unavailable
from worker.outage import Outage
from worker.remote.connection import QUICK_S, Connection

EVERY_S = 10.0
_SLACK_S = 1.0
_RENEWED_WITHIN_S = 15.0
"""While leases were renewed within so long, the next renewal brings what is observed."""
_MOST_SAMPLES = 2
_OLDEST_S = 60.0

logger = logging.getLogger(__name__)


class Reporting:
    """Threads may share it. `clock` returns seconds."""

    def __init__(self, connection: Connection, *, clock: Callable[[], float]) -> None:
        self._connection = connection
        self._clock = clock
        self._lock = threading.Lock()
        """Held while a heartbeat is sent."""
        self._samples: list[tuple[float, Sequence[DeviceReport]]] = []
        """The newest observations that were not sent yet, with their times."""
        self._starts = StartsReport(mode="cold")
        self._sent_at = self._renewed_at = float("-inf")
        self._refused = Outage(meanwhile="this worker gets no jobs", over="the service takes this worker again")
        self._orders = Orders()
        self._is_stale = True
        """Whether the orders may be others by now."""

    def observe(self, devices: Sequence[DeviceReport], starts: StartsReport) -> Orders:
        """Keeps an observation, and sends it if it is time. Returns the newest orders. Raises Unavailable."""
        with self._lock:
            now = self._clock()
            self._samples = [*self._samples, (now, devices)][-_MOST_SAMPLES:]
            self._starts = starts
            renews = now - self._renewed_at < _RENEWED_WITHIN_S
            if now - self._sent_at >= EVERY_S + (_RENEWED_WITHIN_S - EVERY_S if renews else -_SLACK_S):
                self._send(())
            return self._orders

    def renew(self, attempt_ids: Collection[int]) -> set[int]:
        """Renews leases. Returns which attempts the worker still owns. Raises Unavailable."""
        with self._lock:
            owned = self._send(attempt_ids)
            self._renewed_at = self._clock()
            return owned

    def orders(self) -> Orders:
        """Returns what the service wants of this worker, as it was told last unless it may have changed since."""
        with self._lock:
            if self._is_stale:
                self._note(self._connection.call(wire.ORDERS, wire.Nothing()))
            return self._orders

    def mark_stale(self) -> None:
        """Notes that the service may want something else by now."""
        self._is_stale = True

    def _send(self, attempt_ids: Collection[int]) -> set[int]:
        now = self._clock()
        samples = [
            wire.Sample(age_s=min(_OLDEST_S, max(0.0, now - at)), devices=devices) for at, devices in self._samples
        ]
        beat = wire.Beat(samples=samples, starts=self._starts, attempts=[*attempt_ids])
        try:
            told = self._connection.call(wire.HEARTBEAT, beat, timeout_s=QUICK_S)
        except NotAuthorized as error:  # it was removed: none of its attempts goes on
            logger.error("%s", error.message)
            return set()
        except Conflict as error:  # of another version, or a GPU that another worker has
            raise self._refused.note(Unavailable(error.message)) from None
        self._refused.end()
        self._sent_at = now
        self._samples = []
        self._note(told.orders)
        return {*told.owned}

    def _note(self, orders: Orders) -> None:
        if orders.is_copied and not self._orders.is_copied:
            logger.warning("another host tried to use this worker's token: join that host with a code of its own")
        self._orders, self._is_stale = orders, False
