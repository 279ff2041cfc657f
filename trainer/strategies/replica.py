"""What the strategies share in which every rank holds the whole model."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from torchyard.contract.recipes import DistributedConfig
from trainer.world import World


class Replica:
    """The part of a strategy for which whole tensors are all that there is."""

    def __init__(self, model: nn.Module) -> None:
        self.module = model
        """The task's model, without a wrapper."""

    def grad_norm(self) -> Tensor:
        return get_total_norm([item.grad for item in self.module.parameters() if item.grad is not None])

    def clip(self, max_norm: float, *, norm: Tensor) -> None:
        clip_grads_with_norm_(self.module.parameters(), max_norm, norm)

    def whole(self, tree: Any) -> Any:
        return tree

    def shard(self, tensor: Tensor, like: Tensor) -> Tensor:
        return tensor


def wrap(model: nn.Module, config: DistributedConfig, world: World) -> DistributedDataParallel:
    """The model with the weights of rank 0, whose gradients are averaged in buckets that stay as they are."""
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
    if not (config.static_graph or config.find_unused_parameters):
        _rehearse(wrapped)
    return wrapped


def _rehearse(wrapped: DistributedDataParallel) -> None:
    """A backward pass without a model, after which DDP rebuilds its buckets as it would after the first step.

    Three ranks and more add the numbers of another layout in another order, so that the first step after a resume
    would differ from the same step of a run that went on; and PowerSGD keeps its memory by bucket. With
    `find_unused_parameters` DDP never rebuilds; with `static_graph` it does only after two real steps.
    """
    trained = [parameter for parameter in wrapped.module.parameters() if parameter.requires_grad]
    wrapped.reducer.prepare_for_backward([])
    torch.stack([parameter.sum().float() for parameter in trained]).sum().backward()  # gradients in reverse order
    for parameter in trained:
        parameter.grad = None
