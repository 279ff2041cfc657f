"""The optimizer, and the learning rate of each step."""

from dataclasses import dataclass
import math

import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from torchyard.recipes import OptimizerConfig, SchedulerConfig


def make_optimizer(model: nn.Module, config: OptimizerConfig, *, device: torch.device) -> Optimizer:
    """The optimizer of the model's parameters. Those of one dimension, norms and biases, have no weight decay."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [item for item in trained if item.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [item for item in trained if item.ndim <= 1], "weight_decay": 0.0},
    ]
    fused = device.type == "cuda" if config.fused == "auto" else config.fused
    if config.name == "sgd":
        return SGD(groups, lr=config.lr, momentum=config.momentum, nesterov=config.nesterov, fused=fused)
    kind = Adam if config.name == "adam" else AdamW
    return kind(groups, lr=config.lr, fused=fused)


@dataclass(frozen=True)
class Schedule:
    """The learning rate as a function of where the run is; it has no state of its own."""

    config: SchedulerConfig
    base_lr: float
    total_steps: int

    def lr(self, step: int, *, epoch: int) -> float:
        """The rate of optimizer step `step`, which is in `epoch`; both count from 1.

        Warm-up rises from base_lr / warmup_steps to base_lr. Cosine then falls over the steps that are left and would
        reach min_lr one step after the last.
        """
        warmup = self.config.warmup_steps
        if step <= warmup:
            return self.base_lr * step / warmup
        if self.config.name == "step":
            return self.base_lr * self.config.gamma ** ((epoch - 1) // self.config.step_epochs)
        if self.config.name == "cosine":
            done = (step - 1 - warmup) / max(self.total_steps - warmup, 1)
            cosine = (1 + math.cos(math.pi * min(done, 1.0))) / 2
            return self.config.min_lr + (self.base_lr - self.config.min_lr) * cosine
        return self.base_lr


def set_lr(optimizer: Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr
