"""Which devices a job gets on this worker, and why a job waits: pure functions, the scheduler's own words."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from store.intents import Holder
from store.jobs import Reason
from torchyard.spec import Resources
from torchyard.views import DeviceView

_GIB = 1 << 30


@dataclass(frozen=True)
class Host:
    """A worker as the scheduler sees it: its devices, each with the job that holds it or what blocks it."""

    name: str
    devices: Sequence[DeviceView]
    draining: bool = False


def pick(resources: Resources, devices: Sequence[DeviceView]) -> list[DeviceView] | None:
    """The devices that the job gets now, all or none, lowest index first."""
    free = [device for device in suitable(resources, devices) if is_free(device)]
    if len(free) < resources.devices_per_node:
        return None
    return sorted(free, key=lambda device: device.index)[: resources.devices_per_node]


def make_room(resources: Resources, devices: Sequence[DeviceView], candidates: Sequence[Holder]) -> list[Holder] | None:
    """The fewest of `candidates` whose devices the job needs beside the free ones: the lowest priority first, of those
    the one that began last. None where even all of them are not enough."""
    order = sorted(candidates, key=lambda holder: (holder.priority, -holder.since))
    victims: list[Holder] = []
    while pick(resources, _without(devices, victims)) is None:
        if len(victims) == len(order):
            return None
        victims.append(order[len(victims)])
    for victim in victims[:-1]:
        others = [other for other in victims if other is not victim]
        if pick(resources, _without(devices, others)) is not None:
            victims = others
    return victims


def explain(resources: Resources, hosts: Sequence[Host]) -> Reason:
    """Why the job does not start: the same sentence from whichever worker says it, if all give the same order."""
    wanted = _wanted(resources)
    fitting = [replace(host, devices=suitable(resources, host.devices)) for host in hosts]
    largest = max(fitting, key=lambda host: len(host.devices), default=None)
    if largest is None or not largest.devices:
        return Reason("no_such_device", f"needs {wanted}; no worker has any")
    if len(largest.devices) < resources.devices_per_node:
        return Reason("too_big", f"needs {wanted}; the largest worker, {largest.name}, has {len(largest.devices)}")
    parts = [_shortfall(host) for host in fitting if len(host.devices) >= resources.devices_per_node]
    return Reason("devices_busy", f"needs {wanted}; " + "; ".join(parts))


def suitable(resources: Resources, devices: Sequence[DeviceView]) -> list[DeviceView]:
    """The devices of the kind and size that the job asks for. `auto` is CUDA wherever there is any."""
    kind = resources.device
    if kind == "auto":
        kind = "cuda" if any(device.kind == "cuda" for device in devices) else "cpu"
    least = (resources.min_memory_gb or 0) * _GIB
    return [device for device in devices if device.kind == kind and (not least or (device.memory_bytes or 0) >= least)]


def is_free(device: DeviceView) -> bool:
    return device.job_id is None and device.blocked is None


def _without(devices: Sequence[DeviceView], stopped: Sequence[Holder]) -> list[DeviceView]:
    gone = {holder.job_id for holder in stopped}
    return [device.model_copy(update={"job_id": None}) if device.job_id in gone else device for device in devices]


def _wanted(resources: Resources) -> str:
    count, plural = resources.devices_per_node, "" if resources.devices_per_node == 1 else "s"
    noun = {"cuda": "GPU", "cpu": "CPU slot", "auto": "device"}[resources.device]
    memory = f" of at least {resources.min_memory_gb:g} GiB" if resources.min_memory_gb else ""
    return f"{count} {noun}{plural}{memory}"


def _shortfall(host: Host) -> str:
    if host.draining:
        return f"{host.name} is draining"
    free = sum(is_free(device) for device in host.devices)
    blocked = [device.blocked for device in host.devices if device.blocked is not None]
    return "; ".join([f"{free} free on {host.name}", *blocked])
