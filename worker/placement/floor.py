"""The devices of all workers in one pass over the queue: who holds each, and for whom each is kept."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace

from store.rows.jobs import Reason
from torchyard.contract.spec import Resources
from torchyard.contract.views import DeviceView
from worker.placement import schedule
from worker.placement.schedule import Host

Held = Mapping[tuple[str, str], str]
"""Worker id and device uuid to job id."""


class Floor:
    """`hosts` are the workers by id, with devices as they see them; `held` tells who holds each."""

    def __init__(self, hosts: Mapping[str, Host], held: Held) -> None:
        self._hosts = dict(sorted(hosts.items()))  # in one order for whoever looks, as its words follow it
        self._held = dict(held)
        self._kept: dict[tuple[str, str], str] = {}
        self._offered = {worker_id: self._now(worker_id, self._held) for worker_id in self._hosts}

    def offered(self, worker_id: str) -> Sequence[DeviceView]:
        """The worker's devices as the next job finds them: one that is kept for another job looks held by it."""
        return self._offered[worker_id].devices

    def take(self, worker_id: str, devices: Sequence[DeviceView], *, job_id: str) -> None:
        self._held |= {(worker_id, device.uuid): job_id for device in devices}
        self._offered[worker_id] = self._now(worker_id, self._held | self._kept)

    def keep(self, worker_id: str, resources: Resources, *, job_id: str) -> None:
        """From now on, whatever suits `job_id` there is for nobody else."""
        if worker_id not in self._hosts:
            return
        suitable = schedule.suitable(resources, self._hosts[worker_id].devices)
        self._kept |= {(worker_id, device.uuid): job_id for device in suitable}
        self._offered[worker_id] = self._now(worker_id, self._held | self._kept)

    def fits_elsewhere(self, worker_id: str, resources: Resources) -> bool:
        """Whether another worker is about to take the job."""
        return any(
            not host.draining and schedule.fits_soon(resources, host.devices)
            for other, host in self._offered.items()
            if other != worker_id
        )

    def explain(self, waiting: Iterable[Resources], favoured: Mapping[str, str]) -> Generator[tuple[Resources, Reason]]:
        """Why each of these waits; `favoured` as in schedule.explain."""
        hosts = [self._now(worker_id, self._held) for worker_id in self._hosts]
        for resources in waiting:
            yield resources, schedule.explain(resources, hosts, favoured)

    def _now(self, worker_id: str, held: Held) -> Host:
        """In a container the driver may tell pids that are not ours for our own job's: who holds it is not blocked."""
        host = self._hosts[worker_id]
        holders = [held.get((worker_id, view.uuid)) for view in host.devices]
        devices = [
            view.model_copy(update={"job_id": holder, "blocked": None if holder is not None else view.blocked})
            for view, holder in zip(host.devices, holders, strict=True)
        ]
        return replace(host, devices=devices)
