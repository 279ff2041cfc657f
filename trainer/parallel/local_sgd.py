"""`local_sgd`: every rank trains alone, and the ranks average their weights periodically."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor, nn

from torchyard.contract.recipes import DistributedConfig
from trainer.parallel.ddp import wrap
from trainer.parallel.tensors import average, broadcast, share_buffers
from trainer.world import World


class LocalSgd:
    """Post-local SGD (Lin et al., arXiv 1808.07217): DDP for `warmup_steps`, then an average every `period` steps.

    Each rank keeps its own momenta, as in the paper. An evaluation and a checkpoint average the weights, too.
    """

    # torch's PeriodicModelAverager counts calls and not steps: it averages right after the first step, and counts from
    # 0 on resume. It also skips parameters whose gradients are None, and warns about a period of 1.
    local = True

    def __init__(self, model: nn.Module, config: DistributedConfig, world: World) -> None:
        self.module = model
        """The task's model, without a wrapper."""
        self._config, self._device = config.local_sgd, world.device
        self._wrapped = wrap(model, config, world) if self._config.warmup_steps else None
        self._trained = {name: item for name, item in model.named_parameters() if item.requires_grad}
        self._step = 0
        self._diverged = False
        """Whether the ranks' weights differ."""
        self.in_step = True
        if self._wrapped is None:
            broadcast([*model.parameters(), *model.buffers()])

    @property
    def model(self) -> nn.Module:
        return self.module if self._wrapped is None else self._wrapped

    def micro_batch(self, *, last: bool) -> AbstractContextManager[object]:
        if self._wrapped is None or (last and self._step < self._config.warmup_steps):
            return nullcontext()
        return self._wrapped.no_sync()

    def after_step(self, step: int, *, skipped: Tensor) -> None:
        self._step = step
        alone = step - self._config.warmup_steps
        self._diverged = alone > 0
        self.in_step = alone <= 0 or alone % self._config.period == 0
        if self._diverged and self.in_step:
            self._average_weights()

    def sync_ranks(self, *more: Mapping[str, Tensor]) -> None:
        if self._diverged:
            self._average_weights()
        share_buffers(self.module, more)
        if self._step > self._config.warmup_steps:
            for tensors in more:
                average([tensors[name] for name in self._trained if name in tensors], device=self._device)

    def state_dict(self) -> dict[str, Any]:
        return {"step": self._step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._step = state["step"]
        alone = self._step - self._config.warmup_steps
        self._diverged = alone > 0 and alone % self._config.period != 0

    def _average_weights(self) -> None:
        average(list(self._trained.values()))
        self._diverged = False
