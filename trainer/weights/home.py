"""Where a model is built."""

import torch
from torch import nn

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
