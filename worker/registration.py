"""How a daemon tells the others what it offers, and learns which attempts are its own: as a host, or as a pool."""

import contextlib
from dataclasses import replace
import threading
from typing import Protocol

from store.worker.protocol import Verbs
from store.worker.records import HostOffer, Registered
from torchyard.contract.cluster.devices import PoolReport
from torchyard.contract.errors import Unavailable
from torchyard.host.identity import boot_id
from worker.cleanup.housekeeper import Housekeeper
from worker.monitor import DeviceMonitor
from worker.observation import Observation
from worker.pools import Pool
from worker.troubles import Troubles


class Registration(Protocol):
    """Every method but `release` raises Unavailable."""

    @property
    def superseded(self) -> bool:
        """Whether another daemon has taken this one's place since `register`."""
        ...

    def register(self) -> Registered:
        """Registers the daemon.

        Raises Conflict while another daemon has its place.
        """
        ...

    def report(self) -> None:
        """Stores that the daemon is alive, and what it offers now."""
        ...

    def release(self) -> None:
        """Lets another daemon take this one's place at once: the last write of one that leaves."""
        ...


class HostRegistration:
    """`shares_cpus`: whether other workers of this host get a share of its CPUs."""

    superseded = False

    def __init__(
        self,
        *,
        store: Verbs,
        devices: DeviceMonitor,
        seen: Observation,
        housekeeper: Housekeeper,
        troubles: Troubles,
        shares_cpus: bool,
    ) -> None:
        self._store = store
        self._devices = devices
        self._seen = seen
        self._housekeeper = housekeeper
        self._troubles = troubles
        self._shares_cpus_of = boot_id() if shares_cpus else None

    def register(self) -> Registered:
        return self._store.register(self._devices.name, HostOffer(self._seen.first(), self._shares_cpus_of))

    def report(self) -> None:
        devices, seen = self._seen.report()
        starts = replace(seen, caches=self._housekeeper.caches, troubles=self._troubles.reports())
        sharers = self._store.heartbeat(HostOffer(devices), starts=starts).cpu_sharers
        if self._store.worker_id in sharers:
            self._devices.share_cpus(index=sharers.index(self._store.worker_id), workers=len(sharers))

    def release(self) -> None:
        pass


class PoolRegistration:
    """Of all daemons that may serve the pool, one is registered at a time."""

    def __init__(self, pool: Pool, *, store: Verbs, seen: Observation, troubles: Troubles) -> None:
        self.superseded = False
        self._pool = pool
        self._store = store
        self._seen = seen
        self._lock = threading.Lock()
        """Held while the rows are written: what was true before a registration must not be taken for its outcome."""
        self._troubles = troubles

    def register(self) -> Registered:
        self._seen.first()
        with self._lock:
            registered = self._store.register(self._pool.name, self._offer())
            self.superseded = False
        return registered

    def report(self) -> None:
        starts = replace(self._seen.report()[1], troubles=self._troubles.reports())
        with self._lock:
            self.superseded = not self._store.heartbeat(self._offer(), starts=starts).is_served

    def release(self) -> None:
        if not self.superseded:
            with contextlib.suppress(Unavailable):
                self._store.release()

    def _offer(self) -> PoolReport:
        report = self._pool.report()
        return replace(report, obstacle=report.obstacle or self._seen.obstacle)
