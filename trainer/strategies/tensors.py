"""Collectives over tensors that every rank has."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, distributed, nn


@torch.no_grad()
def broadcast(tensors: Iterable[Tensor]) -> None:
    """Gives every rank the values of rank 0. A collective."""
    for tensor in tensors:
        distributed.broadcast(tensor, src=0)


@torch.no_grad()
def average(tensors: Sequence[Tensor]) -> None:
    """Gives every rank the mean over all ranks, with one all-reduce for each dtype. A collective."""
    for dtype in sorted({tensor.dtype for tensor in tensors}, key=str):
        alike = [tensor for tensor in tensors if tensor.dtype == dtype]
        flat = torch.cat([tensor.reshape(-1) for tensor in alike])
        distributed.all_reduce(flat)
        flat /= distributed.get_world_size()
        for tensor, mean in zip(alike, flat.split([tensor.numel() for tensor in alike]), strict=True):
            tensor.copy_(mean.view(tensor.shape))


def share_buffers(model: nn.Module, more: Iterable[Mapping[str, Tensor]]) -> None:
    """Gives every rank the buffers of rank 0, and the tensors in `more` with names of buffers. A collective."""
    names = {name for name, _ in model.named_buffers()}
    broadcast(model.buffers())
    for tensors in more:
        broadcast(tensor for name, tensor in tensors.items() if name in names)
