"""GPUs of a fake NVML binding, CPU slots, and the locks between workers."""

from dataclasses import dataclass, field
import fcntl
import os
from pathlib import Path
import pwd
import stat
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tests.approved import Approved
from torchyard.contract.errors import ConfigError
from torchyard.host import device_locks
from torchyard.host.device_locks import Holder
from worker.devices.bus import count_nvidia_gpus
from worker.devices.inventory import Device, discover, lock_devices
from worker.host import process

GIB = 1 << 30


class DriverError(Exception):
    pass


@dataclass
class FakeNvml:
    """NVML with the given GPUs. A call that is named in `failing` raises."""

    gpus: dict[str, list[Any]]
    failing: set[str] = field(default_factory=set[str])
    mig: int = 0
    used: int = 22 * GIB
    uncorrected: dict[str, int] = field(default_factory=dict[str, int])
    rows: dict[str, tuple[int, int, int, int]] = field(default_factory=dict[str, tuple[int, int, int, int]])
    """By GPU, as NVML returns them: corrected, uncorrected, whether a repair is pending, whether one failed."""
    pages: int = 0
    xids: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """By GPU, the events that were not read yet."""
    minors: dict[str, int] = field(default_factory=dict[str, int])
    """By GPU, the number of its device file, if that is not its index."""
    NVMLError: type[Exception] = DriverError

    def _answer(self, call: str, value: Any = None) -> Any:
        if call in self.failing:
            raise DriverError(f"{call}: GPU is lost")
        return value

    def nvmlInit(self) -> Any:
        return self._answer("init")

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        return self._answer(f"index {index}", list(self.gpus)[index])

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:
        return self._answer("handle", uuid)

    def nvmlDeviceGetUUID(self, handle: Any) -> str | bytes:
        return handle.encode()

    def nvmlDeviceGetMinorNumber(self, handle: Any) -> int:
        return self._answer("minor", self.minors.get(handle, list(self.gpus).index(handle)))

    def nvmlDeviceGetName(self, handle: Any) -> str | bytes:
        return "NVIDIA H200"

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any:
        return self._answer("memory", SimpleNamespace(total=139 * GIB, used=self.used))

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:
        return self._answer("utilization", SimpleNamespace(gpu=37, memory=5))

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:
        return self._answer("power", 312_480)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> Any:
        return self._answer("processes", self.gpus[handle])

    def nvmlDeviceGetMigMode(self, handle: Any) -> Any:
        return self._answer("mig", [self.mig, self.mig])

    def nvmlDeviceGetTotalEccErrors(self, handle: Any, errorType: int, counterType: int) -> Any:
        assert (errorType, counterType) == (1, 0)  # uncorrected, since the driver was loaded
        return self._answer("ecc", self.uncorrected.get(handle, 0))

    def nvmlDeviceGetRemappedRows(self, device: Any) -> Any:
        return self._answer("rows", self.rows.get(device, (0, 0, 0, 0)))

    def nvmlDeviceGetRetiredPagesPendingStatus(self, device: Any) -> Any:
        return self._answer("pages", self.pages)

    def nvmlEventSetCreate(self) -> Any:
        return self._answer("events", [])

    def nvmlDeviceRegisterEvents(self, handle: Any, eventTypes: int, eventSet: Any) -> Any:
        assert eventTypes == 8  # critical XIDs
        eventSet.append(handle)

    def nvmlEventSetWait_v2(self, eventSet: Any, timeoutms: int) -> Any:
        assert timeoutms == 0
        waiting = self.xids.get(eventSet[0], [])
        if not waiting:
            raise DriverError("Timeout")
        return SimpleNamespace(eventData=waiting.pop(0))


def _process(pid: int, memory: int | None) -> Any:
    return SimpleNamespace(pid=pid, usedGpuMemory=memory)


def _two_gpus(*processes: Any) -> FakeNvml:
    return FakeNvml({"GPU-aaaa": [], "GPU-bbbb": list(processes)})


def test_gpus_are_offered_and_cpu_slots_only_on_request() -> None:
    devices = discover(nvml=_two_gpus(), environ={}).devices
    assert devices == (
        Device(0, "GPU-aaaa", "NVIDIA H200", "cuda", 139 * GIB),
        Device(1, "GPU-bbbb", "NVIDIA H200", "cuda", 139 * GIB),
    )
    kinds = [device.uuid for device in discover(1, nvml=_two_gpus(), environ={}).devices]
    assert kinds == ["GPU-aaaa", "GPU-bbbb", "cpu-0"]


@pytest.mark.parametrize("binding", [FakeNvml({}), FakeNvml({"GPU-aaaa": []}, failing={"init"})])
def test_without_a_gpu_or_a_driver_there_are_cpu_slots(binding: FakeNvml) -> None:
    inventory = discover(nvml=binding, environ={})
    assert [device.kind for device in inventory.devices] == ["cpu"] * max(2, os.cpu_count() or 1)
    assert [view.blocked for view in inventory.observe(set())] == [None] * len(inventory.devices)
    assert [device.uuid for device in discover(3, nvml=binding, environ={}).devices] == ["cpu-0", "cpu-1", "cpu-2"]


def test_gpus_of_the_bus_that_the_driver_does_not_show_are_named() -> None:
    away = FakeNvml({"GPU-aaaa": []}, failing={"init"})
    assert discover(nvml=away, environ={}, bus=lambda: 2).lacking == (
        "2 NVIDIA GPUs are not offered: their driver does not respond (init: GPU is lost)"
    )
    assert discover(nvml=away, environ={}, bus=lambda: 0).lacking is None
    lost = FakeNvml({"GPU-aaaa": [], "GPU-bbbb": []}, failing={"index 1"})
    found = discover(nvml=lost, environ={})
    assert [device.uuid for device in found.devices] == ["GPU-aaaa"]
    assert found.lacking == "GPU 1 of 2 does not respond: not offered"
    assert discover(nvml=_two_gpus(), environ={"CUDA_VISIBLE_DEVICES": "1"}).lacking is None


def test_a_host_without_a_driver_of_nvidia_lacks_nothing() -> None:
    class NotInstalled(DriverError):
        value = 12

    class Binding(FakeNvml):
        def nvmlInit(self) -> Any:
            raise NotInstalled("NVML Shared Library Not Found")

    assert discover(nvml=Binding({}), environ={}, bus=lambda: 1).lacking is None


def test_gpus_are_counted_on_the_bus(tmp_path: Path) -> None:
    for name, vendor, kind in (
        ("gpu", "0x10de", "0x030200"),
        ("sound", "0x10de", "0x040300"),
        ("other", "0x1002", "0x03"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / name / "class").write_text(f"{kind}\n")
    (tmp_path / "gone").mkdir()
    assert count_nvidia_gpus(tmp_path) == 1


@pytest.mark.parametrize(
    ("visible", "uuids"), [("1", ["GPU-bbbb"]), ("GPU-aa", ["GPU-aaaa"]), ("", []), ("0, 1", ["GPU-aaaa", "GPU-bbbb"])]
)
def test_cuda_visible_devices_selects_the_gpus(visible: str, uuids: list[str]) -> None:
    found = discover(0, nvml=_two_gpus(), environ={"CUDA_VISIBLE_DEVICES": visible}).devices
    assert [device.uuid for device in found] == uuids


def test_the_processes_and_the_memory_of_a_gpu_are_shown() -> None:
    free, used = discover(nvml=_two_gpus(_process(77, 21 * GIB)), environ={}).observe({77})
    assert (free.blocked, free.processes) == (None, [])
    assert (used.memory_bytes, used.memory_used_bytes, used.utilization) == (139 * GIB, 22 * GIB, 0.37)
    assert used.power_watts == 312.48
    assert [(item.pid, item.memory_bytes) for item in used.processes] == [(77, 21 * GIB)]
    assert used.blocked is None


def test_a_gpu_that_a_foreign_process_uses_is_blocked_with_a_reason(approved: Approved) -> None:
    binding = _two_gpus(_process(77, GIB), _process(4121, 21 * GIB), _process(9, None))
    free, used = discover(nvml=binding, environ={}).observe({77})
    assert free.blocked is None
    assert used.blocked == approved("blocked")


def test_values_that_the_driver_does_not_report_are_none() -> None:
    binding = _two_gpus()
    inventory = discover(nvml=binding, environ={})
    binding.failing = {"utilization", "power", "processes", "mig"}
    view = inventory.observe(set())[0]
    assert (view.utilization, view.power_watts, view.processes, view.blocked) == (None, None, [], None)
    assert view.memory_used_bytes == 22 * GIB


@pytest.mark.parametrize("call", ["handle", "memory"])
def test_a_gpu_that_fell_off_the_bus_is_blocked(call: str, approved: Approved) -> None:
    binding = _two_gpus()
    inventory = discover(nvml=binding, environ={})
    binding.failing = {call}
    assert inventory.observe(set())[1].blocked == approved("blocked", call=call)


def test_a_gpu_split_into_instances_is_blocked(approved: Approved) -> None:
    binding = _two_gpus()
    binding.mig = 1
    blocked = discover(nvml=binding, environ={}).observe(set())[0].blocked
    assert blocked == approved("blocked")


def test_a_gpu_belongs_to_one_worker_of_the_host(tmp_path: Path, approved: Approved) -> None:
    devices = discover(nvml=_two_gpus(), environ={}).devices
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with lock_devices(devices, first, folder=tmp_path):
        with pytest.raises(ConfigError) as caught:
            lock_devices(devices, second, folder=tmp_path)
        assert caught.value.message == (approved("message", getpid=os.getpid(), first=first))
        lock_devices(devices[:0], second, folder=tmp_path).close()  # the refused worker holds no lock
    lock_devices(devices, second, folder=tmp_path).close()


def test_gpus_that_another_worker_holds_are_left_to_it(tmp_path: Path) -> None:
    binding, data = _two_gpus(), tmp_path / "first"
    data.mkdir()
    gpus = discover(nvml=binding, environ={}).devices
    with lock_devices(gpus[:1], data, folder=tmp_path):
        held = device_locks.holders(folder=tmp_path)
        assert held == {"GPU-aaaa": Holder(os.getpid(), str(data))}
        left = discover(nvml=binding, environ={}, held=held)
    assert [device.uuid for device in left.devices] == ["GPU-bbbb"]
    who = f"the worker of {pwd.getpwuid(os.getuid()).pw_name} (pid {os.getpid()}, data in {data})"
    assert left.lacking == f"GPU 0 belongs to {who}: not offered"
    with lock_devices(gpus, data, folder=tmp_path):
        none_left = discover(2, nvml=binding, environ={}, held=device_locks.holders(folder=tmp_path))
    assert [device.uuid for device in none_left.devices] == ["cpu-0", "cpu-1"]
    assert device_locks.holders(folder=tmp_path) == {}


@pytest.mark.parametrize("text", ["[" * 10_000, '{"pid": ' + "9" * 9_000 + "}", "[1]", '{"pid": 1}', "{"])
def test_any_text_may_be_in_the_lock_of_a_gpu(tmp_path: Path, text: str, approved: Approved) -> None:
    devices = discover(nvml=_two_gpus(), environ={}).devices
    with lock_devices(devices, tmp_path, folder=tmp_path):
        (tmp_path / f"torchyard-{devices[0].uuid}.lock").write_text(text)
        other = tmp_path / "other"
        other.mkdir()
        with pytest.raises(ConfigError) as raised:
            lock_devices(devices, other, folder=tmp_path)
        assert str(raised.value) == approved("message")


def test_cpu_slots_belong_to_one_worker_of_a_data_directory(tmp_path: Path) -> None:
    slots = discover(2, nvml=FakeNvml({}), environ={}).devices
    other = tmp_path / "other"
    other.mkdir()
    with (
        lock_devices(slots, tmp_path, folder=tmp_path),
        lock_devices(slots, other, folder=tmp_path),
        pytest.raises(ConfigError, match="the data directory"),
    ):
        lock_devices(slots, tmp_path, folder=tmp_path)


def test_a_lock_ends_with_its_process_and_no_child_keeps_it(tmp_path: Path) -> None:
    program = (
        "import subprocess, sys, pathlib\n"
        "from worker.devices.inventory import lock_devices\n"
        "locks = lock_devices([], pathlib.Path(sys.argv[1]))\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], close_fds=False)\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-P", "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        child = process.identity(int(holder.stdout.readline()))
        assert child is not None
        try:
            with pytest.raises(ConfigError, match=f"pid {holder.pid}"):
                lock_devices([], tmp_path)
        finally:
            holder.kill()
            holder.wait()
        try:
            assert process.is_alive(child)
            lock_devices([], tmp_path).close()
        finally:
            process.kill_all(lambda: [child] if process.is_alive(child) else [], timeout=None)


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_link_or_a_pipe_in_place_of_a_lock_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "torchyard-GPU-aaaa.lock"
    victim = tmp_path / "victim"
    victim.write_text("precious")
    if kind == "link":
        path.symlink_to(victim)
    else:
        os.mkfifo(path)
    with pytest.raises(ConfigError, match="cannot be locked"):
        lock_devices(discover(nvml=_two_gpus(), environ={}).devices, tmp_path, folder=tmp_path)
    assert victim.read_text() == "precious"


def test_other_users_can_lock_a_gpu_but_not_the_data_directory(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        lock_devices(discover(nvml=_two_gpus(), environ={}).devices, tmp_path, folder=tmp_path).close()
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes.pop("worker.lock") == 0o600
    assert [*modes.values()] == [0o666] * 2


def test_a_lock_whose_holder_did_not_write_its_name(tmp_path: Path, approved: Approved) -> None:
    path = tmp_path / "worker.lock"
    with path.open("w") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(ConfigError) as raised:
            lock_devices([], tmp_path, folder=tmp_path)
        assert str(raised.value) == approved("message", tmp_path=tmp_path)
