"""Finds the devices of this host, shows what runs on them, and locks each for one worker."""

from collections.abc import Callable, Iterable, Mapping, Sequence
import contextlib
from dataclasses import dataclass, replace
import fcntl
import json
import os
from pathlib import Path
import stat
from types import MappingProxyType
from typing import Any, Literal, Protocol, Self, TypeVar, cast

import pynvml

from torchyard.contract.cluster.devices import DeviceProcess, DeviceReport
from torchyard.contract.errors import ConfigError
from torchyard.host import device_locks
from torchyard.host.device_locks import Holder
from torchyard.host.failpoints import failpoint
from worker.devices.bus import count_nvidia_gpus

T = TypeVar("T")

_GIB = 1 << 30
_NO_LIBRARY = 12
"""NVML's code of a host on which no driver of NVIDIA is installed."""


class Nvml(Protocol):
    """The functions of the NVML binding (`pynvml`) that are used. Any of them may raise `NVMLError`."""

    NVMLError: type[Exception]

    def nvmlInit(self) -> Any: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any: ...
    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any: ...
    def nvmlDeviceGetUUID(self, handle: Any) -> str | bytes: ...
    def nvmlDeviceGetMinorNumber(self, handle: Any) -> int: ...
    def nvmlDeviceGetName(self, handle: Any) -> str | bytes: ...
    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any: ...
    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any: ...
    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int: ...
    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> Any: ...
    def nvmlDeviceGetMigMode(self, handle: Any) -> Any: ...
    def nvmlDeviceGetTotalEccErrors(self, handle: Any, errorType: int, counterType: int) -> Any: ...
    def nvmlDeviceGetRemappedRows(self, device: Any) -> Any: ...
    def nvmlDeviceGetRetiredPagesPendingStatus(self, device: Any) -> Any: ...
    def nvmlEventSetCreate(self) -> Any: ...
    def nvmlDeviceRegisterEvents(self, handle: Any, eventTypes: int, eventSet: Any) -> Any: ...
    def nvmlEventSetWait_v2(self, eventSet: Any, timeoutms: int) -> Any: ...


@dataclass(frozen=True)
class Device:
    """One GPU or one CPU slot. `index` counts within its kind, for GPUs in the order of the PCI bus."""

    index: int
    uuid: str
    name: str
    kind: Literal["cuda", "cpu"]
    memory_bytes: int | None = None


@dataclass(frozen=True)
class Inventory:
    """The devices that a worker offers."""

    devices: tuple[Device, ...]
    nvml: Nvml | None = None
    lacking: str | None = None
    """Which GPUs of this host are not offered, as their driver does not answer for them. None: all are."""

    def observe(self, own_pids: set[int]) -> list[DeviceReport]:
        """Returns each device as it is now.

        A GPU is `blocked` if it does not respond, or if a process outside `own_pids`, the processes of our jobs,
        computes on it. A value is None if the driver does not report it.
        """
        failpoint("driver.read")
        return [self._view(device, own_pids) for device in self.devices]

    def _view(self, device: Device, own_pids: set[int]) -> DeviceReport:
        view = DeviceReport(
            index=device.index,
            uuid=device.uuid,
            name=device.name,
            kind=device.kind,
            memory_bytes=device.memory_bytes,
        )
        if device.kind == "cpu" or self.nvml is None:
            return view
        nvml = self.nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(device.uuid)
            used = int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
        except nvml.NVMLError as error:
            return replace(view, blocked=f"GPU {device.index} does not respond: {error}")
        rates = query(nvml, lambda: nvml.nvmlDeviceGetUtilizationRates(handle), None)
        milliwatts = query(nvml, lambda: nvml.nvmlDeviceGetPowerUsage(handle), None)
        running = query(nvml, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle), [])
        processes = [DeviceProcess(pid=int(item.pid), memory_bytes=int(item.usedGpuMemory or 0)) for item in running]
        return replace(
            view,
            memory_used_bytes=used,
            utilization=None if rates is None else int(rates.gpu) / 100,
            power_watts=None if milliwatts is None else milliwatts / 1000,
            processes=processes,
            blocked=_mig_obstacle(nvml, handle, device) or _foreign_use(device, processes, own_pids),
        )


def discover(
    cpu_slots: int | None = None,
    *,
    nvml: Nvml | None = None,
    environ: Mapping[str, str] = os.environ,
    bus: Callable[[], int] = count_nvidia_gpus,
    held: Mapping[str, Holder] = MappingProxyType({}),
) -> Inventory:
    """Returns the GPUs that the driver shows and `cpu_slots` CPU slots. None: slots only if there is no GPU.

    CUDA_VISIBLE_DEVICES (indices in PCI order, or UUIDs) selects the GPUs that this worker may offer. `bus` counts the
    NVIDIA GPUs of the host, where the driver does not answer. GPUs that are `held` by other workers are left out.
    """
    binding = nvml if nvml is not None else cast(Nvml, pynvml)
    gpus, lacking = _gpus(binding, environ.get("CUDA_VISIBLE_DEVICES"), bus=bus)
    others = [f"GPU {gpu.index} belongs to {held[gpu.uuid]}: not offered" for gpu in gpus if gpu.uuid in held]
    gpus = [gpu for gpu in gpus if gpu.uuid not in held]
    lacking = "; ".join([*([lacking] if lacking else []), *others]) or None
    if cpu_slots is None:
        cpu_slots = 0 if gpus else max(2, os.cpu_count() or 1)
    slots = [Device(index, f"cpu-{index}", "CPU slot", "cpu") for index in range(cpu_slots)]
    return Inventory((*gpus, *slots), binding if gpus else None, lacking)


def of_device_files(numbers: Sequence[int], *, nvml: Nvml | None = None) -> Inventory | None:
    """Returns the GPUs whose device files, such as `/dev/nvidia3`, have these numbers. None if the driver shows fewer.

    It counts GPUs in the order of the PCI bus, and numbers their files in the order in which it found them.
    """
    binding = nvml if nvml is not None else cast(Nvml, pynvml)
    by_number = {_minor_number(binding, device): device for device in _gpus(binding, None)[0]}
    if not by_number.keys() >= set(numbers):
        return None
    devices = sorted((by_number[number] for number in set(numbers)), key=lambda device: device.index)
    return Inventory(tuple(devices), binding)


def query(nvml: Nvml, call: Callable[[], T], default: T) -> T:
    """Returns what `call` returns, or `default` if the driver does not support or permit it."""
    try:
        return call()
    except nvml.NVMLError:
        return default


class DeviceLocks:
    """File locks, held until `close` or the end of the process. No child inherits them."""

    def __init__(self) -> None:
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def acquire(self, path: Path, *, name: str, holder: Mapping[str, object], mode: int = 0o600) -> None:
        """Locks `path`, which gets this mode if it is new, and writes `holder` into it.

        Raises ConfigError that names the present holder, and OSError.
        """
        descriptor = _open_lock(path, name, mode)
        self._open.callback(os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"{name} belongs to another worker of this host: {_holder(descriptor)}") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(dict(holder)).encode(), 0)

    def close(self) -> None:
        self._open.close()


def lock_devices(devices: Iterable[Device], data_dir: Path, *, folder: Path = device_locks.FOLDER) -> DeviceLocks:
    """Locks every GPU on this host and the CPU slots of `data_dir` for this worker: all of them or none.

    Raises ConfigError if another worker holds one of them, and OSError.
    """
    holder: dict[str, object] = {"pid": os.getpid(), "data_dir": str(data_dir.absolute())}
    locks = DeviceLocks()
    with contextlib.ExitStack() as undo:
        undo.callback(locks.close)
        for device in devices:
            if device.kind == "cuda":
                path = device_locks.path_of(device.uuid, folder=folder)
                name = f"GPU {device.index} ({device.uuid})"
                locks.acquire(path, name=name, holder=holder, mode=0o666)  # other users' workers lock it too
        locks.acquire(data_dir / "worker.lock", name=f"the data directory {data_dir}", holder=holder)
        undo.pop_all()
    return locks


def _gpus(nvml: Nvml, visible: str | None, *, bus: Callable[[], int] = lambda: 0) -> tuple[list[Device], str | None]:
    """Returns the GPUs, and what is to be said of those that the driver does not show."""
    try:
        nvml.nvmlInit()
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        return [], _without_driver(error, bus)
    gpus = [query(nvml, lambda index=index: _gpu(nvml, index), None) for index in range(count)]
    silent = [index for index, device in enumerate(gpus) if device is None]
    lacking = f"GPU {', '.join(map(str, silent))} of {count} does not respond: not offered" if silent else None
    return [device for device in gpus if device is not None and _is_visible(device, visible)], lacking


def _without_driver(error: Exception, bus: Callable[[], int]) -> str | None:
    if getattr(error, "value", None) == _NO_LIBRARY or not (count := bus()):
        return None
    return f"{count} NVIDIA GPUs are not offered: their driver does not respond ({error})"


def _gpu(nvml: Nvml, index: int) -> Device:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = query(nvml, lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total), None)
    return Device(index, _text(nvml.nvmlDeviceGetUUID(handle)), _text(nvml.nvmlDeviceGetName(handle)), "cuda", memory)


def _minor_number(nvml: Nvml, device: Device) -> int:
    return query(nvml, lambda: nvml.nvmlDeviceGetMinorNumber(nvml.nvmlDeviceGetHandleByUUID(device.uuid)), device.index)


def _is_visible(device: Device, visible: str | None) -> bool:
    if visible is None:
        return True
    names = [name.strip() for name in visible.split(",")]
    return any(name == str(device.index) or (len(name) > 4 and device.uuid.startswith(name)) for name in names)


def _mig_obstacle(nvml: Nvml, handle: Any, device: Device) -> str | None:
    current = query(nvml, lambda: nvml.nvmlDeviceGetMigMode(handle)[0], 0)
    return f"GPU {device.index} is split into MIG instances: not offered" if current else None


def _foreign_use(device: Device, processes: Sequence[DeviceProcess], own_pids: set[int]) -> str | None:
    foreign = [process for process in processes if process.pid not in own_pids]
    if not foreign:
        return None
    shown = ", ".join(f"pid {process.pid} ({_size(process.memory_bytes)})" for process in foreign[:8])
    return f"GPU {device.index} is held by {shown}, which no job started"


def _size(amount: int) -> str:
    if not amount:
        return "memory unknown"
    return f"{amount / _GIB:.0f} GiB" if amount >= 10 * _GIB else f"{amount / _GIB:.1f} GiB"


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _open_lock(path: Path, name: str, mode: int) -> int:
    """Opens an existing file without O_CREAT: in a sticky folder, the kernel forbids that for another user's file."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    while True:
        try:
            descriptor = os.open(path, flags)
        except FileNotFoundError:
            try:
                descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                continue  # another worker created it first
            os.fchmod(descriptor, mode)
        except OSError as error:
            raise ConfigError(f"{name} cannot be locked: {path}: {error.strerror}") from None
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        raise ConfigError(f"{name} cannot be locked: {path} is not a regular file")


def _holder(descriptor: int) -> str:
    try:
        holder = device_locks.written_in(descriptor)
        return f"pid {holder['pid']}, data directory {holder['data_dir']}"
    except (ValueError, KeyError):
        return "one that did not write its name"
