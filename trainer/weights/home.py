"""Where a model is built."""

from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from torchyard.contract.recipes import DistributedConfig, Recipe
from torchyard.models.placement import memory_format


def home(config: DistributedConfig, device: torch.device) -> torch.device:
    """Returns the device that a model is built on: the CPU for `fsdp`, as one GPU may not hold the whole model.

    `fsdp` then moves the model to the GPU one block at a time.
    """
    return torch.device("cpu") if config.strategy == "fsdp" else device


def placed(model: nn.Module, config: Recipe, device: torch.device) -> nn.Module:
    """Returns a model of pictures at its `home`, in its memory format."""
    target = home(config.distributed, device)
    return model.to(device=target, memory_format=memory_format(config, device))  # pyright: ignore[reportCallIssue] it is no overload


@contextmanager
def without_weights() -> Generator[None]:
    """Returns a context in which modules get parameters on the meta device, which take no memory.

    Buffers have their memory and their values, as many are in no file of weights. `fsdp` fills the parameters.
    """
    hook = register_module_parameter_registration_hook(_on_meta)  # pyright: ignore[reportArgumentType] its type forgets the result
    try:
        yield
    finally:
        hook.remove()


def _on_meta(module: nn.Module, name: str, parameter: nn.Parameter | None) -> nn.Parameter | None:
    if parameter is None or parameter.is_meta:  # a shared one keeps its identity
        return parameter
    return nn.Parameter(parameter.to("meta"), requires_grad=parameter.requires_grad)
