"""The accelerator of a rank, such as a GPU, through what torch offers for every kind. torch is imported lazily."""

from collections.abc import Iterable
import os
import sys
from typing import TYPE_CHECKING

from torchyard.contract.attempts.rundir import Env

if TYPE_CHECKING:
    import torch


def own_device(local_rank: int) -> "torch.device":
    """Returns the device of the rank `local_rank` of this host: its accelerator if there is one, else the CPU.

    Where fewer are visible than ranks run, as in a test with one GPU, ranks share them: NCCL permits or refuses that.
    Raises RuntimeError if the service gave this job GPUs and torch cannot use them: it says why.
    """
    import torch

    kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if kind is None and os.environ.get(Env.RUN_DIR) and os.environ.get("CUDA_VISIBLE_DEVICES"):
        raise RuntimeError(f"this job has a GPU that PyTorch cannot use: {_why_without_gpus()}")
    if kind is None:
        return torch.device("cpu")
    return torch.device(kind.type, local_rank % max(1, torch.accelerator.device_count()))


def is_accelerator(device: "torch.device") -> bool:
    """Whether `device` has memory of its own, and works while the host goes on."""
    return device.type != "cpu"


def select(device: "torch.device") -> None:
    """Makes an accelerator the one that is used where no index is named. Call it before anything uses a device."""
    import torch

    torch.accelerator.set_device_index(device.index)


def synchronize() -> None:
    """Waits for what was enqueued on the accelerator. Does nothing if this process has not used one."""
    torch = sys.modules.get("torch")
    kind = None if torch is None else torch.accelerator.current_accelerator()
    if torch is not None and kind is not None and torch.get_device_module(kind).is_initialized():
        torch.accelerator.synchronize()


def record_events(devices: Iterable["torch.device"]) -> "list[torch.Event]":
    """Returns an event for each accelerator in `devices`: it is done when what is enqueued there now is done."""
    import torch

    return [torch.accelerator.current_stream(device).record_event() for device in devices if is_accelerator(device)]


def wait_for(devices: Iterable["torch.device"]) -> None:
    """Waits for what is enqueued on each accelerator in `devices` now."""
    for event in record_events(devices):
        event.synchronize()


def free_memory(device: "torch.device") -> int:
    """Returns the bytes of an accelerator's memory that no process uses."""
    import torch

    return torch.accelerator.get_memory_info(device)[0]


def peak_memory(device: "torch.device") -> int:
    """Returns the most bytes that tensors of this process have had on an accelerator."""
    import torch

    return torch.accelerator.max_memory_allocated(device)


def release_unused_memory() -> None:
    """Gives an accelerator the memory that no tensor uses any more."""
    import torch

    torch.accelerator.empty_cache()


def name(device: "torch.device") -> str:
    """Returns the product name of an accelerator, or `CPU`."""
    import torch

    return torch.get_device_module(device).get_device_name(device) if is_accelerator(device) else "CPU"


def computes_bf16(device: "torch.device") -> bool:
    """Whether an accelerator computes in bf16 without emulation."""
    import torch

    return is_accelerator(device) and torch.get_device_module(device).is_bf16_supported(including_emulation=False)


def random_state() -> "torch.Tensor | None":
    """Returns the state of the generator of the selected accelerator; None without one."""
    import torch

    return torch.get_device_module().get_rng_state() if torch.accelerator.is_available() else None


def set_random_state(state: "torch.Tensor | None") -> None:
    """Restores what `random_state` returned. Ignores it without an accelerator."""
    import torch

    if state is not None and torch.accelerator.is_available():
        torch.get_device_module().set_rng_state(state)


def _why_without_gpus() -> str:
    import torch

    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return str(error)
    return "it sees none"
