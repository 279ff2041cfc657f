"""Decides which devices a job gets on this worker, and why a job waits. All functions are pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from store.rows.intents import Holder
from store.rows.jobs import Reason
from torchyard.contract.devices import DeviceReport
from torchyard.contract.fitting import suitable
from torchyard.contract.spec import Resources


@dataclass(frozen=True)
class Host:
    """A worker as the scheduler sees it: its devices, each with the job that holds it or what blocks it."""

    name: str
    devices: Sequence[DeviceReport]
    draining: bool = False


def pick_devices(resources: Resources, devices: Sequence[DeviceReport]) -> list[DeviceReport] | None:
    """Returns the devices that the job gets now, lowest index first, or None if there are too few."""
    free = [device for device in suitable(resources, devices) if is_free(device)]
    if len(free) < resources.devices_per_node:
        return None
    return sorted(free, key=lambda device: device.index)[: resources.devices_per_node]


def fits_soon(resources: Resources, devices: Sequence[DeviceReport]) -> bool:
    """Returns whether enough devices are free now, or as soon as GPUs have released their memory."""
    return _missing(resources, suitable(resources, devices)) <= 0


def choose_victims(resources: Resources, devices: Sequence[DeviceReport], candidates: Sequence[Holder]) -> list[Holder]:
    """Returns the fewest of `candidates` whose devices the job needs beside those that are free soon.

    It prefers the lowest priority, and then the job that began last. Returns none if even all are not enough.
    """
    fitting = suitable(resources, devices)
    missing = _missing(resources, fitting)
    gains = Counter(device.job_id for device in fitting)
    victims: list[Holder] = []
    for holder in sorted(candidates, key=lambda holder: (holder.priority, -holder.since)):
        if missing <= 0:
            break
        if gains[holder.job_id]:
            victims.append(holder)
            missing -= gains[holder.job_id]
    if missing > 0:
        return []
    for victim in victims[:-1]:
        if missing + gains[victim.job_id] <= 0:
            victims.remove(victim)
            missing += gains[victim.job_id]
    return victims


def explain(
    resources: Resources, hosts: Sequence[Host], preemptors: Mapping[str, str] = MappingProxyType({})
) -> Reason:
    """Returns why the job does not start. All workers return the same sentence for the same order of hosts.

    `preemptors` maps each job that was preempted to the owner of the job that gets its devices.
    """
    wanted = _describe_request(resources)
    fitting = [replace(host, devices=suitable(resources, host.devices)) for host in hosts]
    largest = max(fitting, key=lambda host: len(host.devices), default=None)
    if largest is None or not largest.devices:
        return Reason("no_such_device", f"needs {wanted}; no worker has any")
    if len(largest.devices) < resources.devices_per_node:
        return Reason("too_big", f"needs {wanted}; the largest worker, {largest.name}, has {len(largest.devices)}")
    parts = [
        _describe_shortage(host, preemptors) for host in fitting if len(host.devices) >= resources.devices_per_node
    ]
    return Reason("devices_busy", f"needs {wanted}; " + "; ".join(parts))


def is_free(device: DeviceReport) -> bool:
    return device.job_id is None and device.blocked is None


def _missing(resources: Resources, fitting: Sequence[DeviceReport]) -> int:
    """Returns how many devices the job lacks beside those that are free now or soon."""
    free = sum(is_free(device) or (device.job_id is None and device.returning) for device in fitting)
    return resources.devices_per_node - free


def _describe_request(resources: Resources) -> str:
    count, plural = resources.devices_per_node, "" if resources.devices_per_node == 1 else "s"
    noun = {"cuda": "GPU", "cpu": "CPU slot", "auto": "device"}[resources.device]
    memory = f" of at least {resources.min_memory_gb:g} GiB" if resources.min_memory_gb else ""
    return f"{count} {noun}{plural}{memory}"


def _describe_shortage(host: Host, preemptors: Mapping[str, str]) -> str:
    if host.draining:
        return f"{host.name} is draining"
    free = sum(is_free(device) for device in host.devices)
    blocked = [device.blocked for device in host.devices if device.blocked is not None]
    holding = {device.job_id for device in host.devices}
    preemptors_here = sorted({owner for job_id, owner in preemptors.items() if job_id in holding})
    reserved = f", where devices are reserved for a job of {' and '.join(preemptors_here)}" if preemptors_here else ""
    return "; ".join([f"{free} free on {host.name}{reserved}", *dict.fromkeys(blocked)])
