"""Names the jobs that hold the devices for which a job waits, as far as the caller may see them.

The stored reasons are common to all jobs of a shape, and name no job.
"""

from collections import Counter
from collections.abc import Sequence

from torchyard.contract.cluster.fitting import suitable
from torchyard.contract.cluster.views import DeviceView, KeptView, WorkerView
from torchyard.contract.spec.resources import Resources
from torchyard.contract.states import DEVICES_BUSY, RESERVED

NAMEABLE = frozenset({DEVICES_BUSY, RESERVED})
"""The codes of reasons that `named` can make more exact."""
_MOST_NAMED = 2


def named(
    message: str, code: str, resources: Resources, workers: Sequence[WorkerView], *, owner: str, job_id: str | None
) -> str:
    """Returns the reason of a waiting job with the names of what it waits for.

    `workers`: as the caller may see them. It returns `message` unless the job waits for the devices of one worker only.
    """
    needs = f"needs {resources.described}"
    if code not in NAMEABLE or message.split("; ", maxsplit=1)[0] != needs:
        return message
    able = [worker for worker in workers if _may_start_on(worker, resources, owner)]
    if code == RESERVED:
        able = [worker for worker in able if any(job_id is not None and kept.job_id == job_id for kept in worker.kept)]
    if len(able) != 1:
        return message
    (worker,) = able
    devices = suitable(resources, worker.devices)
    free, holders = sum(device.holder is None for device in devices), _holders(devices)
    kinds = {device.kind for device in devices}
    kept = [each for each in worker.kept if each.kind in kinds and (each.job_id is None or each.job_id != job_id)]
    others = {name_of(each) for each in kept}
    is_blocked = any(device.blocked for device in devices if device.holder is None)
    if is_blocked or (free >= resources.total_devices and not others):
        return message
    first = " and ".join(sorted(others))
    if free >= resources.total_devices:
        return f"{needs} on {worker.name}; {_free(free)}, but reserved for {first}"
    holding = ", ".join(filter(None, (_free(free), _held(holders, free))))
    reserved = f"; {worker.name} is reserved for {first}" if first else ""
    return f"{needs} on {worker.name}; {holding}{reserved}"


def name_of(kept: KeptView) -> str:
    """Returns the name of the job of a reservation, or its owner where the caller may not see it."""
    return kept.name or f"a job of {kept.owner}"


def _may_start_on(worker: WorkerView, resources: Resources, owner: str) -> bool:
    """Returns whether the worker takes such a job once enough of its devices are free."""
    is_open = worker.state == "ready" and worker.pool is None and (worker.users is None or owner in worker.users)
    return is_open and len(suitable(resources, worker.devices)) >= resources.total_devices


def _holders(devices: Sequence[DeviceView]) -> Counter[tuple[str, str]]:
    """Returns how many of the devices each job holds. A private job of another user is known by its owner and start."""
    return Counter(
        (device.job_id or f"{holder.owner} {holder.since}", holder.name or f"a job of {holder.owner}")
        for device in devices
        if (holder := device.holder) is not None
    )


def _free(count: int) -> str:
    return f"{count} {'is' if count == 1 else 'are'} free" if count else ""


def _held(holders: Counter[tuple[str, str]], free: int) -> str:
    count = holders.total()
    if not count:
        return ""
    if free:
        what = "the other" if count == 1 else f"the other {count}"
    else:
        what = {1: "it", 2: "both"}.get(count, f"all {count}")
    names = sorted(name for _, name in holders)
    who = " and ".join(names) if len(names) <= _MOST_NAMED else f"{len(names)} jobs"
    return f"{who} hold{'s' if len(names) == 1 else ''} {what}"
