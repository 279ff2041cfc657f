"""What makes many ranks train one model."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from torch import Tensor, nn


class Strategy(Protocol):
    """One of `ddp`, `local_sgd`, `fsdp`, around a task's model, which keeps its own names for its parameters."""

    @property
    def model(self) -> nn.Module:
        """What training calls: the task's model, wrapped where the strategy wraps."""
        ...

    @property
    def local(self) -> bool:
        """Whether weights and optimizer states of the ranks differ between two calls of `settle`."""
        ...

    @property
    def together(self) -> bool:
        """Whether the ranks met in the last step, so that none is ahead of another and all may stop after it."""
        ...

    def micro_batch(self, *, last: bool) -> AbstractContextManager[object]:
        """Around forward and backward of one micro-batch; gradients meet in that of the window's `last` only.

        The gradient of a parameter is then the mean of the ranks' own.
        """
        ...

    def grad_norm(self) -> Tensor:
        """The norm of all gradients together, on the device: a plain tensor, the same on ranks that met. No host sync.

        A collective with shards.
        """
        ...

    def clip(self, max_norm: float, *, norm: Tensor) -> None:
        """Scales the gradients, whose norm is `norm`, so that it is at most `max_norm`. No host sync."""
        ...

    def after_step(self, step: int) -> None:
        """After optimizer step `step`, which counts from 1 over the whole run. May be a collective."""
        ...

    def settle(self, *more: Mapping[str, Tensor]) -> None:
        """Before an evaluation and a checkpoint: parameters and buffers are the same on every rank. A collective.

        So is what is in `more`, tensors under names of the model's state (an EMA's). Training goes on from there.
        """
        ...

    def whole(self, tree: Any) -> Any:
        """`tree` (nested dicts and lists) with whole tensors in host memory in place of shards. A collective.

        Only rank 0, which writes checkpoints, gets them: elsewhere the shards stay.
        """
        ...

    def shard(self, tensor: Tensor, like: Tensor) -> Tensor:
        """The part of a whole tensor that belongs to this rank, in the form of `like`.

        Where `like` is no shard, or of another shape (an optimizer's step count beside its parameter), the tensor
        itself. Every rank gives the same tensor; no collective.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """What exact resume needs besides model and optimizer. A collective; only rank 0's is complete."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Undoes `state_dict`, before the first micro-batch. At another world size, what belongs to one rank is new."""
        ...
