"""The devices of all hosts while a plan is made: which job holds each, and for which it is reserved."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from scheduling.devices import fits_soon
from scheduling.snapshot import Device, Host
from torchyard.contract.fitting import suitable
from torchyard.contract.spec import Resources


class Capacity:
    """What one plan leaves of the hosts."""

    def __init__(self, hosts: Iterable[Host]) -> None:
        # Every worker must build its reasons in the same order.
        self._hosts = {host.id: host for host in sorted(hosts, key=lambda host: host.id)}
        self._offered = dict(self._hosts)

    @property
    def hosts(self) -> Sequence[Host]:
        """The hosts with the jobs that hold their devices, without the reservations."""
        return [*self._hosts.values()]

    def offered(self, worker_id: str) -> Sequence[Device]:
        """Returns the worker's devices for the next job. One that is reserved for another job looks held by it."""
        return self._offered[worker_id].devices

    def take(self, worker_id: str, devices: Iterable[Device], *, job_id: str) -> None:
        """Marks the devices as held by `job_id`."""
        taken = {device.uuid for device in devices}
        for hosts in (self._hosts, self._offered):
            hosts[worker_id] = _held(hosts[worker_id], taken, job_id)

    def reserve(self, worker_id: str, resources: Resources, *, job_id: str) -> None:
        """Reserves all devices of the worker that suit `job_id` for it."""
        if worker_id in self._hosts:
            fitting = {device.uuid for device in suitable(resources, self._hosts[worker_id].devices)}
            self._offered[worker_id] = _held(self._offered[worker_id], fitting, job_id)

    def fits_elsewhere(self, worker_id: str, resources: Resources) -> bool:
        """Returns whether another worker can take the job now or soon."""
        return any(
            not host.draining and fits_soon(resources, host.devices)
            for other, host in self._offered.items()
            if other != worker_id
        )


def _held(host: Host, uuids: Collection[str], job_id: str) -> Host:
    devices = tuple(device.held_by(job_id) if device.uuid in uuids else device for device in host.devices)
    return replace(host, devices=devices)
