"""The optimizer, and the learning rate that it begins with."""

import math

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

from torchyard.contract.errors import ConfigError
from torchyard.contract.recipes import OptimizerConfig

_FUSED_DEVICES = {"cpu", "cuda"}


def make_optimizer(model: nn.Module, config: OptimizerConfig, *, lr: float, device: torch.device) -> Optimizer:
    """The optimizer of the parameters that train. Those of one dimension, norms and biases, have no weight decay.

    A parameter may be sharded: its dimensions are those of the whole. Raises ConfigError where `fused` cannot work.
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
    """The rate for `global_batch` samples a step, where `config.lr` is meant for `per_device_batch`.

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
        # A fused step that is left out before any other would leave memory that nothing wrote as the momentum.
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def _fused(config: OptimizerConfig, device: torch.device, *, sharded: bool) -> bool | None:
    """What torch.optim takes: True, or None, where it takes kernels for many tensors if the device has them."""
    lacking = config.name == "rmsprop" or (config.name == "sgd" and sharded)
    if config.fused == "auto":
        return True if device.type == "cuda" and not lacking else None
    if not config.fused:
        return None
    if config.name == "rmsprop":
        raise ConfigError("optimizer.fused: PyTorch has no fused rmsprop: leave it at auto")
    if device.type not in _FUSED_DEVICES:
        raise ConfigError(f"optimizer.fused: {config.name} has no fused kernel on {device.type}: leave it at auto")
    return True
