"""The service as a worker reaches it that has joined: over HTTPS alone."""

from collections.abc import Callable, Container, Sequence
from pathlib import Path
import ssl
import time
from typing import Self

from store.worker.records import Claim
from torchyard.contract.cluster.devices import DeviceReport
from torchyard.host import joined as joining
from torchyard.host.identity import boot_id
from torchyard.host.joined import Joined
from worker.reaches.meeting import ServiceAddress
from worker.remote.blobs import RemoteBlobs
from worker.remote.connection import Connection
from worker.remote.no_duties import NoDuties, NoForecasts
from worker.remote.placing import RemotePlacing
from worker.remote.reporting import Reporting
from worker.remote.verbs import RemoteVerbs
from worker.remote.wakeups import RemoteWakeups
from worker.settings import Settings

_UNBOUNDED = 2**62


class RemoteService:
    """A `worker.service.Service`. Connects to nothing until it is used."""

    def __init__(
        self,
        url: str,
        worker_id: str,
        *,
        name: str,
        token: str,
        context: ssl.SSLContext,
        boot: str,
        blobs: Path,
        cache_bytes: int,
    ) -> None:
        """`name`: of this host at the service. `context`: checks the service's certificate. `boot`: of this host.

        `blobs`: a folder that no other daemon uses. It keeps at most `cache_bytes` of downloads. Raises OSError.
        """
        self.name = name
        self.connection = Connection(url, token=token, boot=boot, context=context)
        self._reporting = Reporting(self.connection, clock=time.monotonic)
        self.address = ServiceAddress(url, lambda: context)
        self._blobs = RemoteBlobs(blobs, self.connection.http, cache_bytes=cache_bytes)
        self.verbs = RemoteVerbs(self.connection, worker_id, blobs=self._blobs, reporting=self._reporting)
        self.placing = RemotePlacing(self.connection, self._reporting)

    @classmethod
    def of(cls, joined: Joined, settings: Settings) -> Self:
        """Raises ConfigError if the certificate of the service cannot be read, and OSError."""
        return cls(
            joined.url,
            joined.worker_id,
            name=joined.name,
            token=joined.token,
            context=joining.ssl_context(joined),
            boot=boot_id(),
            blobs=settings.blobs,
            cache_bytes=_UNBOUNDED if settings.max_caches_bytes is None else settings.max_caches_bytes,
        )

    def wakeups(self) -> RemoteWakeups:
        return RemoteWakeups(self.connection, woken=self._note_wakeup, is_deaf=self._reporting.mark_stale)

    def duties(self, own: Container[Claim], *, clock: Callable[[], float]) -> NoDuties:
        return NoDuties()

    def forecasts(self, observe: Callable[[], Sequence[DeviceReport]], *, clock: Callable[[], float]) -> NoForecasts:
        return NoForecasts()

    def close(self) -> None:
        self._blobs.close()
        self.connection.close()

    def _note_wakeup(self, asked: bool) -> None:
        self.placing.notice()
        if asked:
            self._reporting.mark_stale()
