"""Checks the devices: what the driver shows, and which process uses each."""

from collections.abc import Iterator
import os
from pathlib import Path
from typing import Protocol, cast

import pynvml

from torchyard.contract.cluster.devices import DeviceReport
from torchyard.host import device_locks, terminal
from worker.devices.bus import count_nvidia_gpus
from worker.devices.inventory import Nvml, discover
from worker.doctor.findings import Finding, failed, ok, warning
from worker.settings import Settings

_OUR_TITLE = "torchyard:job_"
"""How the titles of our ranks start."""
_NO_DRIVER = (
    "install the NVIDIA driver or, after its update, reboot; in a container, add --gpus all (NVIDIA Container Toolkit)"
)


class Driver(Nvml, Protocol):
    def nvmlSystemGetDriverVersion(self) -> str | bytes: ...


def check_devices(settings: Settings, *, driver: Driver | None = None) -> Iterator[Finding]:
    nvml = driver if driver is not None else cast(Driver, pynvml)
    try:
        nvml.nvmlInit()
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        yield _check_without_driver(settings, str(error))
        return
    inventory = discover(settings.cpu_slots, nvml=nvml)
    own_pids = {item.pid for view in inventory.observe(set()) for item in view.processes or () if _is_ours(item.pid)}
    gpus = [view for view in inventory.observe(own_pids) if view.kind == "cuda"]
    yield _check_driver(nvml, count, len(gpus))
    for view in gpus:
        yield _check_gpu(view)


def _check_without_driver(settings: Settings, why: str) -> Finding:
    slots = len(discover(settings.cpu_slots).devices)
    if count := count_nvidia_gpus():
        return failed("devices", f"{count} NVIDIA GPUs are here, but their driver does not respond: {why}", _NO_DRIVER)
    return ok("devices", f"no GPU; {slots} CPU slots")


def _check_driver(nvml: Driver, count: int, offered: int) -> Finding:
    try:
        version = nvml.nvmlSystemGetDriverVersion()
    except nvml.NVMLError as error:
        version = f"of an unknown version ({error})"
    version = version.decode() if isinstance(version, bytes) else version
    fact = f"driver {version}, {count} GPUs"
    if offered == count:
        return ok("devices", fact)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return ok("devices", f"{fact}, of which CUDA_VISIBLE_DEVICES leaves {offered}")
    return warning(
        "devices", f"{fact}, of which {count - offered} do not respond", "look for Xid errors in dmesg, and reboot"
    )


def _check_gpu(view: DeviceReport) -> Finding:
    memory = (
        ""
        if view.memory_bytes is None
        else f", {terminal.size(view.memory_used_bytes or 0)} of {terminal.size(view.memory_bytes)} used"
    )
    holders = "".join(f", held by {_named(item.pid)}" for item in view.processes or ())
    fact = f"{view.name}{memory}{holders}{_offered(view.uuid)}"
    check = f"gpu {view.index}"
    if view.blocked is None:
        return ok(check, fact)
    if "MIG" in view.blocked:
        return warning(check, f"{fact}; {view.blocked}", f"nvidia-smi -i {view.index} -mig 0, as root")
    if "does not respond" in view.blocked:
        return failed(check, view.blocked, "look for Xid errors in dmesg; nvidia-smi --gpu-reset, or reboot")
    return warning(check, f"{fact}; not offered to jobs", "end what holds it; the worker then offers it by itself")


def _named(pid: int) -> str:
    title = _title(pid)
    return f"pid {pid} ({title})" if title else f"pid {pid}"


def _is_ours(pid: int) -> bool:
    return _title(pid).startswith(_OUR_TITLE)


def _title(pid: int) -> str:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""  # it has ended, or runs in another container
    return raw.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")[:60]


def _offered(uuid: str) -> str:
    """Names the worker that holds the lock of the GPU."""
    holder = device_locks.holders().get(uuid)
    return "" if holder is None else f", offered by {holder}"
