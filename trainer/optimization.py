"""Makes the optimizer, and computes its base learning rate."""

import math

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

from torchyard.contract.errors import ConfigError
from torchyard.contract.recipes import OptimizerConfig
from torchyard.run.accelerator import is_accelerator


def make_optimizer(model: nn.Module, config: OptimizerConfig, *, lr: float, device: torch.device) -> Optimizer:
    """Returns the optimizer of the trainable parameters. Norms and biases, with one dimension, have no weight decay.

    The dimensions of a sharded parameter are those of the whole. Raises ConfigError if `fused` cannot work.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups: list[dict[str, list[Tensor] | float]] = [
        {"params": [item for item in trained if item.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [item for item in trained if item.ndim <= 1], "weight_decay": 0.0},
    ]
    fused = _fused(config, device, sharded=any(isinstance(item, DTensor) for item in trained))
    match config.name:
        case "sgd":
            return _sgd(groups, config, lr=lr, fused=fused)
        case "rmsprop":
            return RMSprop(groups, lr=lr, momentum=config.momentum)
        case "adam":
            return Adam(groups, lr=lr, fused=fused)
        case "adamw":
            return AdamW(groups, lr=lr, fused=fused)


def scaled_lr(config: OptimizerConfig, *, global_batch: int, per_device_batch: int) -> float:
    """Returns the learning rate for `global_batch` samples a step; `config.lr` is the rate for `per_device_batch`.

    `linear`: Goyal et al., arXiv 1706.02677; `sqrt`: Krizhevsky, arXiv 1404.5997.
    """
    factor = global_batch / per_device_batch
    match config.lr_scaling:
        case "none":
            return config.lr
        case "linear":
            return config.lr * factor
        case "sqrt":
            return config.lr * math.sqrt(factor)


def _sgd(
    groups: list[dict[str, list[Tensor] | float]], config: OptimizerConfig, *, lr: float, fused: bool | None
) -> SGD:
    optimizer = SGD(groups, lr=lr, momentum=config.momentum, nesterov=config.nesterov, fused=fused)
    if fused and config.momentum:
        # If the first fused step is skipped, PyTorch leaves the momentum uninitialized.
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def _fused(config: OptimizerConfig, device: torch.device, *, sharded: bool) -> bool | None:
    """Returns the `fused` argument of torch.optim: True, or None for its default."""
    lacking = config.name == "rmsprop" or (config.name == "sgd" and sharded)
    if config.fused == "auto":
        return True if is_accelerator(device) and not lacking else None
    if not config.fused:
        return None
    if config.name == "rmsprop":
        raise ConfigError("optimizer.fused: PyTorch has no fused rmsprop: leave it at auto")
    return True
