"""The strategies by which several ranks train one model: `distributed.strategy` selects one."""

import torch
from torch import nn

from torchyard.contract.recipes import DistributedConfig
from trainer.strategies.alone import Alone
from trainer.strategies.batchnorm import synchronized
from trainer.strategies.ddp import Ddp
from trainer.strategies.fsdp import Fsdp
from trainer.strategies.local_sgd import LocalSgd
from trainer.strategies.strategy import Strategy
from trainer.task import Unfilled
from trainer.world import World

__all__ = ["Strategy", "make_strategy", "uses_ddp"]


def make_strategy(
    model: nn.Module,
    config: DistributedConfig,
    world: World,
    *,
    compute: torch.dtype | None = None,
    unfilled: Unfilled | None = None,
) -> Strategy:
    """Returns the strategy that trains `model`, and gives all ranks rank 0's weights. A collective.

    Raises ConfigError, and DataError for `unfilled` weights that are not right.

    Make the optimizer and the averages of weights afterwards: `fsdp` replaces the model's parameters by shards. Every
    call of the model is then a collective. `compute`: the dtype that autocast gives matrix products. `unfilled`: the
    weights of the parameters that are on the meta device, with `fsdp` alone.
    """
    if config.sync_batchnorm:
        model = synchronized(model, world)
    if config.strategy == "fsdp":
        return Fsdp(model, world, compute=compute, unfilled=unfilled)
    if config.strategy == "local_sgd":
        return LocalSgd(model, config, world)
    return Ddp(model, config, world) if uses_ddp(config, world) else Alone(model)


def uses_ddp(config: DistributedConfig, world: World) -> bool:
    """Whether `ddp` wraps the model. One rank alone needs it only for what a communication hook does to gradients."""
    return config.strategy == "ddp" and (world.size > 1 or config.comm_hook != "none")
