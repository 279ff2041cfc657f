"""Where a model is built."""

import torch

from torchyard.contract.recipes import DistributedConfig


def home(config: DistributedConfig, device: torch.device) -> torch.device:
    """Host memory for `fsdp`, which takes it from there a block at a time: the device need not hold it whole."""
    return torch.device("cpu") if config.strategy == "fsdp" else device
