"""The interface of a strategy, by which many ranks train one model."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from torch import Tensor, nn


class Strategy(Protocol):
    """`ddp`, `local_sgd` or `fsdp` around a task's model. The parameters keep their names."""

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
        """Returns the context of forward and backward of a micro-batch. Gradients are averaged in the window's `last`.

        The gradient of a parameter is then the mean of the ranks' gradients.
        """
        ...

    def grad_norm(self) -> Tensor:
        """Returns the norm of all gradients, as a plain tensor on the device. Does not wait for the device.

        It is the same on all ranks if their gradients were averaged. A collective with shards.
        """
        ...

    def clip(self, max_norm: float, *, norm: Tensor) -> None:
        """Scales gradients of the norm `norm` to a norm of at most `max_norm`. Does not wait for the device."""
        ...

    def after_step(self, step: int) -> None:
        """Acts after optimizer step `step`, which counts from 1 over the whole run. May be a collective."""
        ...

    def sync_ranks(self, *more: Mapping[str, Tensor]) -> None:
        """Makes parameters and buffers equal on all ranks, before an evaluation and a checkpoint. A collective.

        `more`: other tensors to make equal, by names of the model's state (those of an EMA). Training continues with
        the new values.
        """
        ...

    def whole(self, tree: Any) -> Any:
        """Returns `tree` (nested dicts, lists and tuples) with whole tensors instead of shards. A collective.

        Only rank 0, which writes checkpoints, gets whole tensors. Other ranks keep their shards. Without shards it is
        `tree` itself; else all tensors are copies in host memory, which nothing changes any more.
        """
        ...

    def shard(self, tensor: Tensor, like: Tensor) -> Tensor:
        """Returns this rank's shard of a whole tensor, sharded as `like` is.

        Returns the tensor itself if `like` is not a shard or has another shape (an optimizer's step count beside its
        parameter). Every rank passes the same tensor. Not a collective.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """Returns what exact resume needs besides model and optimizer. A collective; complete on rank 0 only."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a state before the first micro-batch. At another world size, rank-local state starts anew."""
        ...
