"""`ddp`: every rank has the whole model, and gradients are averaged during the backward pass."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook, fp16_compress_hook

from torchyard.contract.errors import ConfigError
from torchyard.contract.recipes import DistributedConfig
from trainer.strategies.powersgd import PowerSgd
from trainer.strategies.replica import Replica, wrap
from trainer.strategies.tensors import share_buffers
from trainer.world import World


class Ddp(Replica):
    """A model in DistributedDataParallel, with gradient compression if the configuration asks for it.

    Raises ConfigError.
    """

    local = False
    in_step = True

    def __init__(self, model: nn.Module, config: DistributedConfig, world: World) -> None:
        super().__init__(model)
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

    def after_step(self, step: int) -> None:
        pass

    def sync_ranks(self, *more: Mapping[str, Tensor]) -> None:
        share_buffers(self.module, more)

    def state_dict(self) -> dict[str, Any]:
        return {} if self._power_sgd is None else {"powersgd": self._power_sgd.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self._power_sgd is not None and "powersgd" in state:
            self._power_sgd.load_state_dict(state["powersgd"])
