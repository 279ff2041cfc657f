"""How several ranks train one model: `distributed.strategy` selects one of four, with the same five methods."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from torchyard.contract.recipes import DistributedConfig
from trainer.parallel.alone import Alone
from trainer.parallel.batchnorm import synchronized
from trainer.parallel.ddp import Ddp
from trainer.parallel.fsdp import Fsdp
from trainer.parallel.local_sgd import LocalSgd
from trainer.task import Unfilled
from trainer.world import World


class Strategy(Protocol):
    """`ddp`, `local_sgd`, `fsdp` or one process around a task's model. The parameters keep their names."""

    @property
    def model(self) -> nn.Module:
        """The module that training calls: the task's model, or a wrapper of it."""
        ...

    @property
    def local(self) -> bool:
        """Whether weights and optimizer states differ between ranks, until `sync_ranks` makes the weights equal."""
        ...

    @property
    def in_step(self) -> bool:
        """Whether the last step was a collective. No rank is then ahead of another, and all may stop."""
        ...

    def micro_batch(self, *, last: bool) -> AbstractContextManager[object]:
        """Returns the context of forward and backward of a micro-batch. Gradients are averaged in the step's `last`.

        The gradient of a parameter is then the mean of the ranks' gradients.
        """
        ...

    def after_step(self, step: int, *, skipped: Tensor) -> None:
        """Acts after optimizer step `step`, which counts from 1 over the whole run. May be a collective.

        `skipped`: 1 if the step changed nothing, else 0.
        """
        ...

    def sync_ranks(self, *more: Mapping[str, Tensor]) -> None:
        """Makes parameters and buffers equal on all ranks, before an evaluation and a checkpoint. A collective.

        `more`: other tensors to make equal, by names of the model's state (those of an EMA). Training continues with
        the new values.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """Returns what exact resume needs besides model and optimizer. A collective; complete on rank 0 only."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a state before the first micro-batch. At another world size, rank-local state starts anew."""
        ...


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
