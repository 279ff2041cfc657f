"""Tensors that the ranks have in common."""

from collections.abc import Iterable

from torch import Tensor, distributed


def broadcast(tensors: Iterable[Tensor]) -> None:
    """Gives every rank the values of rank 0. A collective."""
    for tensor in tensors:
        distributed.broadcast(tensor.detach(), src=0)
