"""Why a job waits. All workers build equal sentences from equal snapshots."""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from scheduling.devices import is_free
from scheduling.snapshot import Device, Host, Reservation
from torchyard.contract.fitting import suitable
from torchyard.contract.job import Reason
from torchyard.contract.spec import Resources

PREEMPTING = "preempting"
"""Reason code of a queued job for which others are being preempted."""
_NOBODY: Mapping[str, str] = MappingProxyType({})


class Explainer:
    """Explains requests on hosts whose devices no longer change.

    `preemptors` maps each job that was asked to stop to the owner of the job that gets its devices.
    """

    def __init__(self, hosts: Sequence[Host], preemptors: Mapping[str, str] = _NOBODY) -> None:
        self._hosts = hosts
        self._preemptors = preemptors
        self._shortages: dict[tuple[str, float | None], list[tuple[str, int, str]]] = {}

    def explain(self, resources: Resources) -> Reason:
        """Returns why a job with this request does not start."""
        wanted, count = _describe_request(resources), resources.total_devices
        shortages = self._shortages_for(resources)
        largest, most = max(
            ((name, fitting) for name, fitting, _ in shortages), key=lambda host: host[1], default=("", 0)
        )
        if not most:
            return Reason("no_such_device", f"needs {wanted}; no worker has any")
        if most < count:
            return Reason("too_big", f"needs {wanted}; the largest worker, {largest}, has {most}")
        parts = [shortage for _, fitting, shortage in shortages if fitting >= count]
        return Reason("devices_busy", f"needs {wanted}; " + "; ".join(parts))

    def _shortages_for(self, resources: Resources) -> list[tuple[str, int, str]]:
        """Returns of each host its name, the number of devices of the wanted kind, and what of them is free."""
        kind = (resources.device, resources.min_memory_gb)
        if kind not in self._shortages:
            fitting = [(host, suitable(resources, host.devices)) for host in self._hosts]
            self._shortages[kind] = [
                (host.name, len(devices), self._describe_shortage(host, devices)) for host, devices in fitting
            ]
        return self._shortages[kind]

    def _describe_shortage(self, host: Host, devices: Sequence[Device]) -> str:
        if host.draining:
            return f"{host.name} is draining"
        free = sum(is_free(device) for device in devices)
        blocked = [device.blocked for device in devices if device.blocked is not None]
        holding = {device.job_id for device in devices}
        owners = sorted({owner for job_id, owner in self._preemptors.items() if job_id in holding})
        reserved = f", where devices are reserved for a job of {' and '.join(owners)}" if owners else ""
        return "; ".join([f"{free} free on {host.name}{reserved}", *dict.fromkeys(blocked)])


def over_quota(refusal: str) -> Reason:
    """Returns the reason of a job that `Allowance.refusal` holds back."""
    return Reason("quota", refusal)


def preempting(reservations: Sequence[Reservation]) -> Reason:
    """Returns the reason of a job for which others were asked to stop."""
    names = " and ".join(sorted({reservation.worker for reservation in reservations}))
    # Other users' private jobs are not named.
    victims = Counter(reservation.victim_owner for reservation in reservations)
    jobs_of = " and ".join(
        f"{count} job{'s' if count > 1 else ''} of {owner}" for owner, count in sorted(victims.items())
    )
    return Reason(PREEMPTING, f"preempts {jobs_of} with lower priority on {names}")


def _describe_request(resources: Resources) -> str:
    count, plural = resources.total_devices, "" if resources.total_devices == 1 else "s"
    noun = {"cuda": "GPU", "cpu": "CPU slot", "auto": "device"}[resources.device]
    memory = f" of at least {resources.min_memory_gb:g} GiB" if resources.min_memory_gb else ""
    return f"{count} {noun}{plural}{memory}"
