"""`ddp`: every rank has the whole model, and gradients are averaged during the backward pass."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook, fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from torchyard.contract.errors import ConfigError
from torchyard.contract.recipes import DistributedConfig
from torchyard.run.accelerator import is_accelerator
from trainer.parallel.powersgd import PowerSgd
from trainer.parallel.tensors import share_buffers
from trainer.world import World


class Ddp:
    """A model in DistributedDataParallel, with gradient compression if the configuration asks for it.

    Raises ConfigError.
    """

    local = False
    in_step = True

    def __init__(self, model: nn.Module, config: DistributedConfig, world: World) -> None:
        self.module = model
        """The task's model, without a wrapper."""
        self.model = wrap(model, config, world)
        self._power_sgd = PowerSgd(world) if config.comm_hook == "powersgd" else None
        if self._power_sgd is not None:
            self._power_sgd.register(self.model)
        elif config.comm_hook != "none":
            hook = {"bf16": bf16_compress_hook, "fp16": fp16_compress_hook}[config.comm_hook]
            try:
                self.model.register_comm_hook(None, hook)
            except TypeError as error:  # a build of PyTorch without NCCL has no bf16 hook
                raise ConfigError(f"distributed.comm_hook: {config.comm_hook} cannot be used here: {error}") from error

    def micro_batch(self, *, last: bool) -> AbstractContextManager[object]:
        return nullcontext() if last else self.model.no_sync()

    def after_step(self, step: int, *, skipped: Tensor) -> None:
        if self._power_sgd is not None:
            self._power_sgd.end_step(skipped=skipped)

    def sync_ranks(self, *more: Mapping[str, Tensor]) -> None:
        share_buffers(self.module, more)

    def state_dict(self) -> dict[str, Any]:
        return {} if self._power_sgd is None else {"powersgd": self._power_sgd.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self._power_sgd is not None and "powersgd" in state:
            self._power_sgd.load_state_dict(state["powersgd"])


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
