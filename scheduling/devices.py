"""Which devices of a worker a job gets, and which jobs would have to stop for it."""

from collections import Counter
from collections.abc import Sequence

from scheduling.snapshot import Device, Running
from torchyard.contract.fitting import suitable
from torchyard.contract.spec import Resources


def pick_devices(resources: Resources, devices: Sequence[Device]) -> list[Device] | None:
    """Returns the devices that the job gets now, lowest index first, or None if there are too few."""
    free = [device for device in suitable(resources, devices) if is_free(device)]
    if len(free) < resources.total_devices:
        return None
    return sorted(free, key=lambda device: device.index)[: resources.total_devices]


def fits_soon(resources: Resources, devices: Sequence[Device]) -> bool:
    """Returns whether enough devices are free now, or as soon as GPUs have released their memory."""
    return _missing(resources, suitable(resources, devices)) <= 0


def choose_victims(resources: Resources, devices: Sequence[Device], candidates: Sequence[Running]) -> list[Running]:
    """Returns the fewest of `candidates` whose devices the job needs beside those that are free soon.

    It prefers the lowest priority, and then the job that began last. Returns none if even all are not enough.
    """
    fitting = suitable(resources, devices)
    missing = _missing(resources, fitting)
    gains = Counter(device.job_id for device in fitting)
    victims: list[Running] = []
    for job in sorted(candidates, key=lambda job: (job.priority, -job.since, job.job_id)):
        if missing <= 0:
            break
        if gains[job.job_id]:
            victims.append(job)
            missing -= gains[job.job_id]
    if missing > 0:
        return []
    for victim in victims[:-1]:
        if missing + gains[victim.job_id] <= 0:
            victims.remove(victim)
            missing += gains[victim.job_id]
    return victims


def is_free(device: Device) -> bool:
    return device.job_id is None and device.blocked is None


def _missing(resources: Resources, fitting: Sequence[Device]) -> int:
    """Returns how many devices the job lacks beside those that are free now or soon."""
    free = sum(is_free(device) or (device.job_id is None and device.returning) for device in fitting)
    return resources.total_devices - free
