"""How a daemon tells the others what it offers, and learns which attempts are its own: as a host, or as a pool."""

import contextlib
from dataclasses import replace
from typing import Protocol

from store.commands import workers
from store.facts.attempts import Claim
from store.store import Store
from torchyard.contract.devices import DeviceReport, PoolReport, StartsReport
from torchyard.contract.errors import Unavailable
from worker.cleanup.housekeeper import Housekeeper
from worker.monitor import DeviceMonitor
from worker.pools import Pool
from worker.troubles import Troubles

_OBSERVATION = "the observation of the devices"


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
    """`shares_cpus_of`: the boot of the host whose CPUs it shares with other workers, if it does."""

    superseded = False

    def __init__(
        self,
        worker_id: str,
        *,
        name: str,
        store: Store,
        devices: DeviceMonitor,
        housekeeper: Housekeeper,
        troubles: Troubles,
        shares_cpus_of: str | None,
    ) -> None:
        self._worker_id = worker_id
        self._name = name
        self._store = store
        self._devices = devices
        self._housekeeper = housekeeper
        self._troubles = troubles
        self._shares_cpus_of = shares_cpus_of
        self._views: list[DeviceReport] = []
        self._starts = StartsReport(mode="cold")

    def register(self) -> tuple[str, list[Claim]]:
        self._views = self._devices.observe_before_adoption()
        views = [view.to_dict() for view in self._views]
        return workers.register(
            self._store, self._worker_id, name=self._name, devices=views, shares_cpus_of=self._shares_cpus_of
        )

    def report(self) -> None:
        seen = False
        with self._troubles.noted(_OBSERVATION):
            self._views, self._starts = self._devices.report(), self._devices.starts()
            seen = True
        views = self._views if seen else [self._unseen(view) for view in self._views]
        starts = replace(self._starts, caches=self._housekeeper.caches, troubles=self._troubles.told())
        devices = [view.to_dict() for view in views]
        sharers = workers.heartbeat(self._store, self._worker_id, devices=devices, starts=starts.to_dict())
        if self._worker_id in sharers:
            self._devices.share_cpus(place=sharers.index(self._worker_id), workers=len(sharers))

    def release(self) -> None:
        pass

    def _unseen(self, view: DeviceReport) -> DeviceReport:
        return replace(view, blocked=f"worker {self._name} cannot see its devices: its page says why", returning=False)


class PoolRegistration:
    """Of all daemons that may serve the pool, one is registered at a time."""

    def __init__(self, worker_id: str, pool: Pool, *, store: Store, devices: DeviceMonitor, troubles: Troubles) -> None:
        self.superseded = False
        self._worker_id = worker_id
        self._pool = pool
        self._store = store
        self._devices = devices
        self._troubles = troubles

    def register(self) -> tuple[str, list[Claim]]:
        pool = self._pool
        claims = workers.register_pool(
            self._store, self._worker_id, name=pool.name, holder=pool.holder, pool=self._offer()
        )
        self.superseded = False
        return pool.name, claims

    def report(self) -> None:
        starts = replace(self._devices.starts(), troubles=self._troubles.told()).to_dict()
        self.superseded = not workers.pool_heartbeat(
            self._store, self._worker_id, holder=self._pool.holder, pool=self._offer(), starts=starts
        )

    def release(self) -> None:
        if not self.superseded:
            with contextlib.suppress(Unavailable):
                workers.release_pool(self._store, self._worker_id, holder=self._pool.holder)

    def _offer(self) -> PoolReport:
        report = self._pool.report()
        return replace(report, obstacle=report.obstacle or self._devices.obstacle())
