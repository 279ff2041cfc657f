"""The service of a lab: `torchyard up` on this host with HTTPS, whose files no box sees."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
import sys
from types import MappingProxyType
from typing import Any

from tests.e2e.service import Service, running, until
from tests.hosts.lab import Box, Lab
from torchyard.client import Client
from torchyard.contract.cluster.views import WorkerView
from torchyard.contract.errors import TorchyardError
from torchyard.contract.jobs.views import JobView

_UP = (sys.executable, "-P", "-m", "torchyard.cli", "up", "--tls", "--host")


class LabService(Service):
    """A service with a worker of its own, of two slots, and the boxes that join it."""

    def __init__(self, lab: Lab, *, host: str = "0.0.0.0", env: Mapping[str, str] = MappingProxyType({})) -> None:
        """`host`: what it listens on, `::` for IPv6 alone."""
        super().__init__(lab.hidden, command=(*_UP, host), env=env)
        self._lab = lab
        self._address = f"[{lab.address6}]" if ":" in host else lab.address

    @property
    def client(self) -> Client:
        return Client(data_dir=self.data)

    @property
    def url(self) -> str:
        """As boxes see it."""
        return f"https://{self._address}:{self.port}"

    @property
    def port(self) -> int:
        return int(self.server["url"].rpartition(":")[2])

    def join(self, box: Box, *options: str, slots: int = 2, url: str | None = None) -> None:
        """Has a box join with a code of its own, and waits for its devices. `url`: another way to the service."""
        with self.client as client:
            code = client.workers.code(box.name).code
        box.join(url or self.url, "--code", code, *options, slots=slots)
        self.wait_for_worker(box)

    def wait_for_worker(self, box: Box) -> None:
        def is_ready() -> bool:
            found = self.worker(box.name)
            return found is not None and found.state == "ready" and bool(found.devices)

        until(is_ready, what=f"{box.name} is ready", context=self._log)

    def is_ready(self) -> bool:
        """Whether the API answers."""
        try:
            with self.client as client:
                return client.ready().status == "ok"
        except TorchyardError:
            return False

    def remove(self, box: Box) -> None:
        """Ends the box, and has the service forget its worker."""
        box.kill()
        if (found := self.worker(box.name)) is not None:
            with self.client as client:
                client.workers.remove(found.id)

    def worker(self, name: str) -> WorkerView | None:
        with self.client as client:
            return next((each for each in client.workers.list() if each.name == name), None)

    def own_worker(self) -> str:
        """Returns the name of the worker of the service's host."""
        with self.client as client:
            return next(each.name for each in client.workers.list() if not each.remote)

    def submit_on(self, worker: str | None, **spec: Any) -> JobView:
        """Submits a job of two ranks. None: any worker may have it."""
        resources = {"devices_per_node": 2} | ({} if worker is None else {"worker": worker})
        with self.client as client:
            return client.submit({"resources": resources, **spec}).view

    def curves(self, job_id: str) -> dict[str, list[tuple[int, float]]]:
        """Returns each point that is stored of a job, but those of how fast it went."""
        with self.client as client:
            series = client.jobs.metrics(job_id).data
        return {
            each.key: [(point.step, point.value) for point in each.points]
            for each in series
            if each.key.startswith(("train/loss", "val/"))
        }

    def _log(self) -> str:
        return f"{super()._log()}\n{self._lab.said()}"


@contextmanager
def serving(lab: Lab, *, host: str = "0.0.0.0", env: Mapping[str, str] = MappingProxyType({})) -> Generator[LabService]:
    """The service of a lab. At the end it is stopped, and no process of it may be left."""
    with running(LabService(lab, host=host, env=env)) as service:
        assert isinstance(service, LabService)
        yield service
