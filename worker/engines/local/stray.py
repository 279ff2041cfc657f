"""Finds memory that a rank holds on the GPU of another rank, by what the driver says of the processes on each."""

from collections.abc import Mapping, Sequence

from torchyard.contract.attempts.records import ProcessIdentity
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.cluster.devices import DeviceReport
from worker.devices.inventory import Inventory
from worker.engines.base import StrayMemory
from worker.engines.local.launchers import strictness
from worker.engines.local.supervisor.ranks import running_ranks
from worker.host import process

_LEAST_CONTEXT = 64 << 20
"""Bytes. A context of CUDA takes more. A mapping of another rank's memory, as NCCL makes it, takes less."""


def stray_memory(
    run: RunDir, supervisor: ProcessIdentity, inventory: Inventory, *, devices: Sequence[str]
) -> list[StrayMemory]:
    """Returns what the ranks of an attempt hold beside their own devices, which `devices` names by rank."""
    if inventory.nvml is None or len(devices) < 2 or not process.is_alive(supervisor):
        return []
    processes = [*process.descendants(supervisor.pid), *strictness.recorded_processes(run)]
    ranks = running_ranks(run, processes, ranks=range(len(devices)))
    return found_in(inventory.observe(own_pids=set()), devices, {item.pid: rank for rank, item in ranks.items()})


def found_in(reports: Sequence[DeviceReport], devices: Sequence[str], ranks: Mapping[int, int]) -> list[StrayMemory]:
    """Returns what processes hold on devices that are not theirs, except what NCCL maps there. `ranks`: by pid."""
    owners = {uuid: rank for rank, uuid in enumerate(devices)}
    held = {
        (ranks[item.pid], owners[report.uuid]): item.memory_bytes
        for report in reports
        if report.uuid in owners
        for item in report.processes
        if ranks.get(item.pid, owners[report.uuid]) != owners[report.uuid]
    }
    return [
        StrayMemory(rank=rank, device_of=other, memory_bytes=size)
        for (rank, other), size in held.items()
        if (size >= _LEAST_CONTEXT if size else (other, rank) not in held)  # of unknown size: peers map each other's
    ]
