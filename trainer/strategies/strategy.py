"""What makes many ranks train one model."""

from contextlib import AbstractContextManager
from typing import Any, Protocol

from torch import Tensor, nn


class Strategy(Protocol):
    """One of `ddp`, `local_sgd`, `fsdp`, around a task's model, which keeps its own names for its parameters."""

    @property
    def model(self) -> nn.Module:
        """What training calls: the task's model, wrapped where the strategy wraps."""
        ...

    def micro_batch(self, *, last: bool) -> AbstractContextManager[object]:
        """Around forward and backward of one micro-batch; gradients meet in that of the window's `last` only.

        The gradient of a parameter is then the mean of the ranks' own.
        """
        ...

    def after_step(self, step: int) -> None:
        """After optimizer step `step`. May be a collective."""
        ...

    def settle(self, *, final: bool = False) -> None:
        """Before an evaluation and a checkpoint: parameters and buffers are the same on every rank. A collective.

        Training may go on from there as if nothing had happened.
        """
        ...

    def whole(self, tree: Any) -> Any:
        """`tree` (nested dicts and lists) with whole tensors in place of shards. A collective."""
        ...

    def shard(self, tensor: Tensor, like: Tensor) -> Tensor:
        """The part of a whole tensor that belongs to this rank, in the form of `like`."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What exact resume needs besides model and optimizer; the same on every rank. A collective."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...
