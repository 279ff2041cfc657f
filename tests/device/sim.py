"""The simulated device for one process: `load` makes torch see devices `sim:0`, `sim:1`, … of CUDA's rules.

It shows what a GPU would not forgive: tensors of two devices in one operation, values that are read before a copy has
arrived, memory that was never written, waits of the host for the device, and more memory than there is. It cannot show
what only CUDA's libraries do: NCCL, cuDNN and cuBLAS, kernels that overlap, CUDA graphs.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
import importlib.util
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.utils import backend_registration

from tests.device import module
from tests.device.build import NAME

_loaded: list[Any] = []


def load(library: Path, *, devices: int = 2) -> None:
    """Makes the simulated device the accelerator of this process. `library`: from `build.built`."""
    backend_registration.rename_privateuse1_backend("sim")
    spec = importlib.util.spec_from_file_location(NAME, library)
    assert spec is not None and spec.loader is not None
    extension = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(extension)
    extension.set_device_count(devices)
    module.devices = devices
    torch._register_device_module("sim", module)  # pyright: ignore[reportPrivateUsage]
    backend_registration.generate_methods_for_privateuse1_backend()
    distributed.Backend.register_backend("sim", _process_group, devices=["sim"])
    nn.Module._apply = _keep_parameters(nn.Module._apply)  # pyright: ignore[reportPrivateUsage]
    # torch asks each group for the backend of the device that the default group is bound to, as it does for CUDA.
    distributed.Backend.backend_capability["gloo"].append("sim")
    _loaded.append(extension)


def host_waits() -> int:
    """Returns how often the host has waited for a device."""
    return _loaded[0].host_waits()


@contextmanager
def no_host_waits() -> Generator[None]:
    """Makes each wait of the host for a device raise RuntimeError."""
    _loaded[0].forbid_host_waits(True)
    try:
        yield
    finally:
        _loaded[0].forbid_host_waits(False)


def limit_memory(size: int, *, device: int = 0) -> None:
    """Gives a device `size` bytes of memory; 0 is the default of 16 GiB."""
    _loaded[0].set_memory_limit(device, size)


def _keep_parameters(apply: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """Keeps each parameter the same object when its module is moved to the device, as with CUDA."""

    def swapping(module: nn.Module, *arguments: Any, **named: Any) -> nn.Module:
        torch.__future__.set_swap_module_params_on_conversion(True)
        try:
            return apply(module, *arguments, **named)
        finally:
            torch.__future__.set_swap_module_params_on_conversion(False)

    return swapping


def _process_group(store: Any, rank: int, size: int, timeout: Any) -> Any:
    return _loaded[0].backend(distributed.ProcessGroupGloo(store, rank, size, timeout))
