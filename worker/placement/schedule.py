"""Which devices a job gets on this worker, and why a job waits: pure functions, the scheduler's own words."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from store.rows.intents import Holder
from store.rows.jobs import Reason
from torchyard.contract.spec import Resources
from torchyard.contract.views import DeviceView

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


def fits_soon(resources: Resources, devices: Sequence[DeviceView]) -> bool:
    """Whether the job gets its devices now, or as soon as GPUs have their memory back."""
    return _missing(resources, suitable(resources, devices)) <= 0


def make_room(resources: Resources, devices: Sequence[DeviceView], candidates: Sequence[Holder]) -> list[Holder]:
    """The fewest of `candidates` whose devices the job needs beside those that are free soon: the lowest priority
    first, of those the one that began last. None of them where even all are not enough."""
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


def explain(resources: Resources, hosts: Sequence[Host], favoured: Mapping[str, str] = MappingProxyType({})) -> Reason:
    """Why the job does not start: the same sentence from whichever worker says it, if all give the same order.

    `favoured` is for whom a job stops, by its id.
    """
    wanted = _wanted(resources)
    fitting = [replace(host, devices=suitable(resources, host.devices)) for host in hosts]
    largest = max(fitting, key=lambda host: len(host.devices), default=None)
    if largest is None or not largest.devices:
        return Reason("no_such_device", f"needs {wanted}; no worker has any")
    if len(largest.devices) < resources.devices_per_node:
        return Reason("too_big", f"needs {wanted}; the largest worker, {largest.name}, has {len(largest.devices)}")
    parts = [_shortfall(host, favoured) for host in fitting if len(host.devices) >= resources.devices_per_node]
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


def _missing(resources: Resources, fitting: Sequence[DeviceView]) -> int:
    free = sum(is_free(device) or (device.job_id is None and device.returning) for device in fitting)
    return resources.devices_per_node - free


def _wanted(resources: Resources) -> str:
    count, plural = resources.devices_per_node, "" if resources.devices_per_node == 1 else "s"
    noun = {"cuda": "GPU", "cpu": "CPU slot", "auto": "device"}[resources.device]
    memory = f" of at least {resources.min_memory_gb:g} GiB" if resources.min_memory_gb else ""
    return f"{count} {noun}{plural}{memory}"


def _shortfall(host: Host, favoured: Mapping[str, str]) -> str:
    if host.draining:
        return f"{host.name} is draining"
    free = sum(is_free(device) for device in host.devices)
    blocked = [device.blocked for device in host.devices if device.blocked is not None]
    holding = {device.job_id for device in host.devices}
    made_for = sorted({other for job_id, other in favoured.items() if job_id in holding})
    room = f", where room is made for {', '.join(made_for)}" if made_for else ""
    return "; ".join([f"{free} free on {host.name}{room}", *dict.fromkeys(blocked)])
