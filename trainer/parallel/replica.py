"""The base of the strategies in which every rank holds the whole model."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from torchyard.contract.recipes import DistributedConfig
from torchyard.run.accelerator import is_accelerator
from trainer.world import World


class Replica:
    """A strategy without shards."""

    def __init__(self, model: nn.Module) -> None:
        self.module = model
        """The task's model, without a wrapper."""
        self._parameters = tuple(model.parameters())  # a walk through the modules in each step costs a thousand calls

    def grad_norm(self) -> Tensor:
        return get_total_norm([item.grad for item in self._parameters if item.grad is not None])

    def clip(self, max_norm: float, *, norm: Tensor) -> None:
        clip_grads_with_norm_(self._parameters, max_norm, norm)

    def whole(self, tree: Any) -> Any:
        return tree

    def shard(self, tensor: Tensor, like: Tensor) -> Tensor:
        return tensor


def wrap(model: nn.Module, config: DistributedConfig, world: World) -> DistributedDataParallel:
    """Returns the model in DistributedDataParallel, whose buckets stay the same from the first step on."""
    wrapped = DistributedDataParallel(
        model,
        device_ids=[world.device.index] if is_accelerator(world.device) else None,
        find_unused_parameters=config.find_unused_parameters,
        static_graph=config.static_graph,
        gradient_as_bucket_view=config.gradient_as_bucket_view,
        bucket_cap_mb=config.bucket_cap_mb,
    )
    # Training does not read the buffers: they are broadcast before an evaluation and a checkpoint, not at every step.
    wrapped.broadcast_buffers = False
    if not (config.static_graph or config.find_unused_parameters):
        _rebuild_buckets(wrapped)
    return wrapped


def _rebuild_buckets(wrapped: DistributedDataParallel) -> None:
    """Runs a backward pass without the model, so that DDP rebuilds its buckets now and not after the first step.

    With three or more ranks, another bucket layout adds numbers in another order: the first step after a resume would
    differ from the same step of an uninterrupted run. PowerSGD also keeps its state by bucket. DDP never rebuilds the
    buckets with `find_unused_parameters`, and only after two real steps with `static_graph`.
    """
    trained = [parameter for parameter in wrapped.module.parameters() if parameter.requires_grad]
    wrapped.reducer.prepare_for_backward([])
    torch.stack([parameter.sum().float() for parameter in trained]).sum().backward()  # gradients in reverse order
    for parameter in trained:
        parameter.grad = None
