"""The service as a worker on one of its own hosts reaches it: by the database, Redis and the folder of blobs."""

from collections.abc import Callable, Collection, Container, Generator, Iterator, Sequence
from functools import partial
from pathlib import Path
import socket
import ssl
from typing import Self

from store import housekeeping
from store.cluster import device_history
from store.jobs import deletion
from store.queue import placement
from store.queue.announcing import WakeupListener
from store.store import Store
from store.worker.placing import Placer
from store.worker.records import Claim
from store.worker.verbs import WorkerStore
from torchyard.contract.cluster.devices import DeviceReport
from torchyard.host import trust
from torchyard.host.tls import Tls
from worker.cleanup import blobs
from worker.identity import worker_id
from worker.placement.forecaster import Forecaster
from worker.reaches.meeting import OWN_API, ServiceAddress
from worker.rescue import Rescue
from worker.settings import Retention, Settings


class DirectService:
    """A `worker.service.Service`."""

    def __init__(self, store: Store, settings: Settings, *, holder: str | None = None) -> None:
        """`store`: closed by `close`. `holder`: the daemon of a pool."""
        self._store = store
        self._settings = settings
        self.name = socket.gethostname()
        self.verbs = WorkerStore(store, worker_id(settings.identity), holder=holder)
        self.address = ServiceAddress(settings.api_url or OWN_API, partial(_context, settings.api_certificate))
        self.placing = _Passes(store, self.verbs.worker_id, settings, holder=holder)

    @classmethod
    def of(cls, settings: Settings, *, holder: str | None = None) -> Self:
        """Makes the store without connecting. Raises ConfigError."""
        return cls(Store.of(settings, program="torchyard-worker"), settings, holder=holder)

    def service_id(self) -> str:
        """Returns the service's id. Raises NotMigrated, ConfigError and Unavailable."""
        return self._store.service()

    def wakeups(self) -> WakeupListener:
        return self._store.queue.listener()

    def duties(self, own: Container[Claim], *, clock: Callable[[], float]) -> "Duties":
        return Duties(self._store, self._settings.retention, Rescue(self._store, own, clock=clock))

    def forecasts(self, observe: Callable[[], Sequence[DeviceReport]], *, clock: Callable[[], float]) -> Forecaster:
        grace, own = self._settings.max_stop_grace, self.verbs.worker_id
        return Forecaster(self._store, worker_id=own, observe=observe, max_stop_grace=grace, clock=clock)

    def close(self) -> None:
        self._store.close()


def _context(certificate: Path | None) -> ssl.SSLContext:
    """Returns what checks the certificate of the service. Raises ConfigError."""
    return trust.context(None if certificate is None else Tls(certificate, certificate).text())


class Duties:
    """A `worker.service.ClusterDuties`."""

    def __init__(self, store: Store, retention: Retention, rescue: Rescue) -> None:
        self._store = store
        self._retention = retention
        self._rescue = rescue

    def rescue_expired(self) -> None:
        self._rescue.rescue_expired()

    def sweep(self) -> None:
        if self._store.sweep_line():
            self._store.wake_workers()
        placement.delete_unused_reasons(self._store)
        placement.free_idle_places(self._store)

    def database_was_away(self) -> None:
        self._rescue.database_was_away()

    def remove_unreferenced_blobs(self) -> None:
        blobs.remove_unreferenced_blobs(self._store)

    def clean(self) -> Generator[None]:
        yield from housekeeping.trim_finished_jobs(self._store, self._retention.finished_jobs)
        with self._store.write("delete_tombstones") as session:
            deletion.delete_old_tombstones(session)
        yield
        with self._store.write("trim_samples") as session:
            device_history.delete_old(session)
        yield
        yield from housekeeping.add_up_counts(self._store)
        blobs.remove_unused_bundles(self._store, age=self._retention.unused_bundles)
        yield
        yield from housekeeping.join_points(self._store)


class _Passes:
    """A `worker.service.Placing`: this worker plans for itself alone."""

    def __init__(self, store: Store, own: str, settings: Settings, *, holder: str | None) -> None:
        self._placer = Placer(store, holder=holder, max_stop_grace=settings.max_stop_grace)
        self._own = own

    @property
    def has_more(self) -> bool:
        return self._placer.has_more

    def anything_waits(self) -> bool:
        return self._placer.anything_waits()

    def claims(
        self,
        devices: Sequence[DeviceReport],
        *,
        running: Collection[int],
        may_claim: Callable[[], bool],
        may_postpone: bool,
    ) -> Iterator[Claim]:
        found = self._placer.claims({self._own: devices}, may_claim=may_claim, may_postpone=may_postpone)
        return (claim for _, claim in found)
