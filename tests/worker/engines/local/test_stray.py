"""A rank's memory on the GPU of another rank is found by the driver's list of processes."""

from collections.abc import Sequence
import os
from types import SimpleNamespace

import pytest

from tests.worker.attempt import Attempt
from tests.worker.programs import RUNS_FOREVER, rank_process
from tests.worker.test_devices import FakeNvml
from torchyard.contract.cluster.devices import DeviceProcess, DeviceReport
from torchyard.contract.states import EndReason
from worker.devices.inventory import Inventory, discover
from worker.engines.base import StrayMemory
from worker.engines.local.stray import found_in, stray_memory

GPUS = ("GPU-aaaa", "GPU-bbbb")
MIB = 1 << 20


def report(uuid: str, *processes: tuple[int, int]) -> DeviceReport:
    listed = [DeviceProcess(pid=pid, memory_bytes=memory) for pid, memory in processes]
    return DeviceReport(index=0, uuid=uuid, name="H200", kind="cuda", processes=listed)


def test_only_ranks_on_devices_of_other_ranks_are_found() -> None:
    reports = [
        report("GPU-aaaa", (10, 900 * MIB), (11, 500 * MIB), (99, 7 * MIB)),
        report("GPU-bbbb", (11, 900 * MIB)),
        report("GPU-cccc", (10, 500 * MIB)),
    ]
    assert found_in(reports, GPUS, {10: 0, 11: 1}) == [StrayMemory(rank=1, device_of=0, memory_bytes=500 * MIB)]
    assert found_in(reports, GPUS[::-1], {10: 0, 11: 1}) == [
        StrayMemory(rank=0, device_of=1, memory_bytes=900 * MIB),
        StrayMemory(rank=1, device_of=0, memory_bytes=900 * MIB),
    ]


@pytest.mark.parametrize("size", [2 * MIB, 0], ids=["small", "unknown"])
def test_memory_that_peers_map_for_their_exchange_is_not_stray(size: int) -> None:
    reports = [
        report("GPU-aaaa", (10, 900 * MIB), (11, size)),
        report("GPU-bbbb", (10, size), (11, 900 * MIB)),
    ]
    assert found_in(reports, GPUS, {10: 0, 11: 1}) == []


def test_memory_of_unknown_size_on_the_device_of_a_rank_that_maps_nothing_is_stray() -> None:
    reports = [report("GPU-aaaa", (10, 0), (11, 0)), report("GPU-bbbb", (11, 0))]
    assert found_in(reports, GPUS, {10: 0, 11: 1}) == [StrayMemory(rank=1, device_of=0, memory_bytes=0)]


@pytest.mark.parametrize("attempt", ["warm"], indirect=True)
def test_the_ranks_of_an_attempt_are_recognized_by_their_processes(attempt: Attempt) -> None:
    attempt.start(RUNS_FOREVER, world_size=2)
    attempt.wait_for_file("ready-0")
    attempt.wait_for_file("ready-1")
    first, second = (rank_process(attempt, rank).pid for rank in (0, 1))
    on_first = [SimpleNamespace(pid=pid, usedGpuMemory=500 * MIB) for pid in (first, second, os.getpid())]
    on_second = [SimpleNamespace(pid=second, usedGpuMemory=900 * MIB)]
    inventory = discover(nvml=FakeNvml(dict(zip(GPUS, (on_first, on_second), strict=True))), environ={})

    def found(inventory: Inventory, devices: Sequence[str] = GPUS) -> list[StrayMemory]:
        return stray_memory(attempt.run, attempt.supervisor, inventory, devices=devices)

    assert found(inventory) == [StrayMemory(rank=1, device_of=0, memory_bytes=500 * MIB)]
    assert found(inventory, GPUS[:1]) == []
    assert found(Inventory(inventory.devices)) == []
    attempt.stop(EndReason.CANCELLED)
    attempt.report()
    assert found(inventory) == []
