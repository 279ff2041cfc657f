"""The devices of all workers during one pass over the queue: which job holds each, and for which it is reserved."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace

from store.rows.jobs import Reason
from torchyard.contract.devices import DeviceReport
from torchyard.contract.fitting import suitable
from torchyard.contract.spec import Resources
from worker.placement import schedule
from worker.placement.schedule import Host

Holders = Mapping[tuple[str, str], str]
"""Job id by worker id and device uuid."""


class Capacity:
    """`hosts`: the workers by id, with their devices as they see them. `holders`: the job that holds each device."""

    def __init__(self, hosts: Mapping[str, Host], holders: Holders) -> None:
        self._hosts = dict(sorted(hosts.items()))  # every worker must build its reasons in the same order
        self._holders = dict(holders)
        self._reserved: dict[tuple[str, str], str] = {}
        self._offered = {worker_id: self._with_holders(worker_id, self._holders) for worker_id in self._hosts}

    def offered(self, worker_id: str) -> Sequence[DeviceReport]:
        """Returns the worker's devices for the next job. One that is reserved for another job looks held by it."""
        return self._offered[worker_id].devices

    def take(self, worker_id: str, devices: Sequence[DeviceReport], *, job_id: str) -> None:
        """Marks the devices as held by `job_id`."""
        self._holders |= {(worker_id, device.uuid): job_id for device in devices}
        self._offered[worker_id] = self._with_holders(worker_id, self._holders | self._reserved)

    def reserve(self, worker_id: str, resources: Resources, *, job_id: str) -> None:
        """Reserves all devices of the worker that suit `job_id` for it."""
        if worker_id not in self._hosts:
            return
        fitting = suitable(resources, self._hosts[worker_id].devices)
        self._reserved |= {(worker_id, device.uuid): job_id for device in fitting}
        self._offered[worker_id] = self._with_holders(worker_id, self._holders | self._reserved)

    def fits_elsewhere(self, worker_id: str, resources: Resources) -> bool:
        """Returns whether another worker can take the job now or soon."""
        return any(
            not host.draining and schedule.fits_soon(resources, host.devices)
            for other, host in self._offered.items()
            if other != worker_id
        )

    def explain(
        self, waiting: Iterable[Resources], preemptors: Mapping[str, str]
    ) -> Generator[tuple[Resources, Reason]]:
        """Yields why each of these requests waits. `preemptors` as in `schedule.explain`."""
        hosts = [self._with_holders(worker_id, self._holders) for worker_id in self._hosts]
        for resources in waiting:
            yield resources, schedule.explain(resources, hosts, preemptors)

    def _with_holders(self, worker_id: str, holders: Holders) -> Host:
        """Returns the host with the jobs that hold its devices.

        A held device is not blocked: in a container, the driver may report foreign pids for our own job.
        """
        host = self._hosts[worker_id]
        job_ids = [holders.get((worker_id, view.uuid)) for view in host.devices]
        devices = [
            replace(view, job_id=job_id, blocked=None if job_id is not None else view.blocked)
            for view, job_id in zip(host.devices, job_ids, strict=True)
        ]
        return replace(host, devices=devices)
