"""On which device a model computes, in which memory format and in which number format."""

from contextlib import nullcontext

import torch

from torchyard.contract.errors import ConfigError
from torchyard.contract.recipes import Recipe
from torchyard.run.accelerator import computes_bf16, is_accelerator, own_device

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""The formats that are not that of the weights, by the names of `training.precision`."""


def chosen_device(name: str | torch.device) -> torch.device:
    """Returns the device `cpu`, `cuda`, `cuda:1`, …; `auto` is an accelerator if there is one. Raises ConfigError."""
    if name == "auto":
        return own_device(0)
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"the device {name} cannot be used: {str(error).splitlines()[0]}") from error


def memory_format(config: Recipe, device: torch.device) -> torch.memory_format:
    """Returns the memory format of pictures and convolutions that `training.channels_last` asks for on `device`."""
    wanted = config.training.channels_last
    channels_last = is_accelerator(device) if wanted == "auto" else wanted
    return torch.channels_last if channels_last else torch.contiguous_format


def precision(wanted: str, device: torch.device) -> str:
    """Returns `bf16`, `fp16` or `fp32`; `auto` is bf16 on a GPU that has it, else fp32."""
    if wanted != "auto":
        return wanted
    return "bf16" if computes_bf16(device) else "fp32"


def evaluating(name: str, device: torch.device) -> torch.autocast | nullcontext[None]:
    """Returns the context of an evaluation, for a result of `precision`: in bf16 where training is, else single."""
    return torch.autocast(device.type, dtype=DTYPES[name]) if name == "bf16" else nullcontext()
