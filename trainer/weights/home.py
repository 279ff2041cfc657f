"""Where a model is built, and in which memory format."""

import torch
from torch import nn

from torchyard.contract.recipes import DistributedConfig, Recipe
from torchyard.run.accelerator import is_accelerator


def home(config: DistributedConfig, device: torch.device) -> torch.device:
    """Returns the device that a model is built on: the CPU for `fsdp`, as one GPU may not hold the whole model.

    `fsdp` then moves the model to the GPU one block at a time.
    """
    return torch.device("cpu") if config.strategy == "fsdp" else device


def memory_format(config: Recipe, device: torch.device) -> torch.memory_format:
    """Returns the memory format of pictures and convolutions that `training.channels_last` asks for on `device`."""
    wanted = config.training.channels_last
    channels_last = is_accelerator(device) if wanted == "auto" else wanted
    return torch.channels_last if channels_last else torch.contiguous_format


def placed(model: nn.Module, config: Recipe, device: torch.device) -> nn.Module:
    """Returns a model of pictures at its `home`, in its memory format."""
    target = home(config.distributed, device)
    return model.to(device=target, memory_format=memory_format(config, device))  # pyright: ignore[reportCallIssue] it is no overload
