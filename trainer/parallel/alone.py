"""`ddp` of one process, which has nobody to average with: the model without a wrapper."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor, nn

from trainer.strategies.replica import Replica


class Alone(Replica):
    """Takes the steps of DistributedDataParallel on one rank, bit for bit, with a quarter fewer operations."""

    local = False
    in_step = True

    @property
    def model(self) -> nn.Module:
        return self.module

    def micro_batch(self, *, last: bool) -> AbstractContextManager[object]:
        return nullcontext()

    def after_step(self, step: int) -> None:
        pass

    def sync_ranks(self, *more: Mapping[str, Tensor]) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass
