"""How a daemon tells the others what it offers, and learns which attempts are its own: as a host, or as a pool."""

import contextlib
from dataclasses import replace
import threading
from typing import Protocol

from store.attempts.facts import Claim
from store.cluster import workers_writes as workers
from store.store import Store
from torchyard.contract.devices import PoolReport
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

    def register(self) -> tuple[str, list[Claim]]:
        """Registers the daemon. Returns its name and the attempts that it owns.

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
        worker_id: str,
        *,
        store: Store,
        devices: DeviceMonitor,
        seen: Observation,
        housekeeper: Housekeeper,
        troubles: Troubles,
        shares_cpus: bool,
    ) -> None:
        self._worker_id = worker_id
        self._store = store
        self._devices = devices
        self._seen = seen
        self._housekeeper = housekeeper
        self._troubles = troubles
        self._shares_cpus_of = boot_id() if shares_cpus else None

    def register(self) -> tuple[str, list[Claim]]:
        views = [view.to_dict() for view in self._seen.first()]
        return workers.register(
            self._store, self._worker_id, name=self._devices.name, devices=views, shares_cpus_of=self._shares_cpus_of
        )

    def report(self) -> None:
        views, seen = self._seen.report()
        starts = replace(seen, caches=self._housekeeper.caches, troubles=self._troubles.told())
        devices = [view.to_dict() for view in views]
        sharers = workers.heartbeat(self._store, self._worker_id, devices=devices, starts=starts.to_dict())
        if self._worker_id in sharers:
            self._devices.share_cpus(place=sharers.index(self._worker_id), workers=len(sharers))

    def release(self) -> None:
        pass


class PoolRegistration:
    """Of all daemons that may serve the pool, one is registered at a time."""

    def __init__(self, worker_id: str, pool: Pool, *, store: Store, seen: Observation, troubles: Troubles) -> None:
        self.superseded = False
        self._worker_id = worker_id
        self._pool = pool
        self._store = store
        self._seen = seen
        self._lock = threading.Lock()
        """Held while the rows are written: what was true before a registration must not be taken for its outcome."""
        self._troubles = troubles

    def register(self) -> tuple[str, list[Claim]]:
        pool = self._pool
        self._seen.first()
        with self._lock:
            claims = workers.register_pool(
                self._store, self._worker_id, name=pool.name, holder=pool.holder, pool=self._offer()
            )
            self.superseded = False
        return pool.name, claims

    def report(self) -> None:
        starts = replace(self._seen.report()[1], troubles=self._troubles.told()).to_dict()
        with self._lock:
            self.superseded = not workers.pool_heartbeat(
                self._store, self._worker_id, holder=self._pool.holder, pool=self._offer(), starts=starts
            )

    def release(self) -> None:
        if not self.superseded:
            with contextlib.suppress(Unavailable):
                workers.release_pool(self._store, self._worker_id, holder=self._pool.holder)

    def _offer(self) -> PoolReport:
        report = self._pool.report()
        return replace(report, obstacle=report.obstacle or self._seen.obstacle)
