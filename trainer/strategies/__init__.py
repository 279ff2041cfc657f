"""How several ranks train one model: chosen by `distributed.strategy`."""

from torch import nn

from torchyard.contract.recipes import DistributedConfig
from trainer.strategies.batchnorm import synchronized
from trainer.strategies.ddp import Ddp
from trainer.strategies.fsdp import Fsdp
from trainer.strategies.local_sgd import LocalSgd
from trainer.strategies.strategy import Strategy
from trainer.world import World

__all__ = ["Strategy", "make_strategy"]


def make_strategy(model: nn.Module, config: DistributedConfig, world: World) -> Strategy:
    """What trains `model`, with rank 0's weights everywhere. A collective; raises ConfigError.

    The optimizer and the averages of weights are to be made afterwards: `fsdp` puts shards in place of the model's
    parameters, and every call of the model is then a collective.
    """
    if config.sync_batchnorm:
        model = synchronized(model, world)
    if config.strategy == "fsdp":
        return Fsdp(model, world)
    if config.strategy == "local_sgd":
        return LocalSgd(model, config, world)
    return Ddp(model, config, world)
