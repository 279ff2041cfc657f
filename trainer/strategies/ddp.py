"""`ddp`: every rank has the whole model, and gradients are averaged while backward still runs."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from torchyard.recipes import DistributedConfig
from trainer.strategies.tensors import broadcast
from trainer.world import World


class Ddp:
    """A model in DistributedDataParallel."""

    local = False

    def __init__(self, model: nn.Module, config: DistributedConfig, world: World) -> None:
        self.model = wrap(model, config, world)

    def micro_batch(self, *, last: bool) -> AbstractContextManager[object]:
        return nullcontext() if last else self.model.no_sync()

    def clip(self, max_norm: float) -> None:
        clip_grad_norm_(self.model.parameters(), max_norm)

    def after_step(self, step: int) -> None:
        pass

    def settle(self, *more: Mapping[str, Tensor]) -> None:
        module = self.model.module
        names = {name for name, _ in module.named_buffers()}
        broadcast(module.buffers())
        for state in more:
            broadcast(tensor for name, tensor in state.items() if name in names)

    def whole(self, tree: Any) -> Any:
        return tree

    def shard(self, tensor: Tensor, like: Tensor) -> Tensor:
        return tensor

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def wrap(model: nn.Module, config: DistributedConfig, world: World) -> DistributedDataParallel:
    """The model for all ranks, with the weights of rank 0."""
    wrapped = DistributedDataParallel(
        model,
        device_ids=[world.device.index] if world.device.type == "cuda" else None,
        find_unused_parameters=config.find_unused_parameters,
        static_graph=config.static_graph,
        gradient_as_bucket_view=config.gradient_as_bucket_view,
        bucket_cap_mb=config.bucket_cap_mb,
    )
    # Training does not read the buffers: they are shared before an evaluation and a checkpoint, not at every step.
    wrapped.broadcast_buffers = False
    return wrapped
