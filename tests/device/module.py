"""`torch.sim`: what torch and its users call on the module of a device, as on `torch.cuda`."""

from typing import Any

import torch
from torch.accelerator import (
    current_stream,
    empty_cache,
    max_memory_allocated,
    memory_allocated,
    reset_peak_memory_stats,
    set_stream,
    synchronize,
)
from torch.accelerator import (
    device_index as device,
)
from torch.accelerator import (
    set_device_index as set_device,
)

__all__ = [
    "current_stream",
    "device",
    "empty_cache",
    "max_memory_allocated",
    "memory_allocated",
    "reset_peak_memory_stats",
    "set_device",
    "set_stream",
    "synchronize",
]

Event = torch.Event
devices = 1
"""How many there are; set when the device is loaded."""


def Stream(device: Any = None, priority: int = 0, **_: Any) -> torch.Stream:
    return torch.Stream(torch.device("sim", _index(device)), priority=priority)


def stream(stream: torch.Stream) -> torch.Stream:
    return stream  # a context, as it is


def device_count() -> int:
    return devices


def current_device() -> int:
    return torch.accelerator.current_device_index()


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def _is_in_bad_fork() -> bool:  # pyright: ignore[reportUnusedFunction] called by torch
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16]


def get_device_name(device: Any = None) -> str:
    return "Simulated device"


def get_rng_state(device: Any = None) -> torch.Tensor:
    return _generator(device).get_state()


def set_rng_state(state: torch.Tensor, device: Any = None) -> None:
    _generator(device).set_state(state)


def manual_seed(seed: int) -> None:
    _generator(None).manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    for index in range(devices):
        _generator(index).manual_seed(seed)


def _generator(device: Any) -> torch.Generator:
    index = _index(device)
    return torch._C._accelerator_getDefaultGenerator(index)  # pyright: ignore


def _index(device: Any) -> int:
    index = device if isinstance(device, int) or device is None else torch.device(device).index
    return current_device() if index is None else index
