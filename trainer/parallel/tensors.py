"""Collectives over tensors that every rank has."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, distributed, nn


@torch.no_grad()
def broadcast(tensors: Iterable[Tensor], *, device: torch.device | None = None) -> None:
    """Gives every rank the values of rank 0, with one broadcast of all bytes. A collective.

    `device`: where the ranks meet, if tensors are elsewhere.
    """
    # The widest first, so that each begins at a multiple of its width.
    ordered = sorted(tensors, key=lambda tensor: -tensor.itemsize)
    if not ordered:
        return
    flat = torch.cat([tensor.reshape(-1).view(torch.uint8).to(device or tensor.device) for tensor in ordered])
    distributed.broadcast(flat, src=0)
    for tensor, values in zip(ordered, flat.split([tensor.nbytes for tensor in ordered]), strict=True):
        tensor.copy_(values.view(tensor.dtype).view(tensor.shape))


@torch.no_grad()
def average(tensors: Sequence[Tensor], *, device: torch.device | None = None) -> None:
    """Gives every rank the mean over all ranks, with one all-reduce for each dtype. A collective.

    `device`: where the ranks meet, if tensors are elsewhere.
    """
    for dtype in sorted({tensor.dtype for tensor in tensors}, key=str):
        alike = [tensor for tensor in tensors if tensor.dtype == dtype]
        flat = torch.cat([tensor.reshape(-1).to(device or tensor.device) for tensor in alike])
        distributed.all_reduce(flat)
        flat /= distributed.get_world_size()
        for tensor, mean in zip(alike, flat.split([tensor.numel() for tensor in alike]), strict=True):
            tensor.copy_(mean.view(tensor.shape))


def share_buffers(model: nn.Module, more: Iterable[Mapping[str, Tensor]]) -> None:
    """Gives every rank the buffers of rank 0, and the tensors in `more` with names of buffers. A collective."""
    names = {name for name, _ in model.named_buffers()}
    others = (tensors[name] for tensors in more for name in tensors if name in names)
    broadcast([*model.buffers(), *others], device=next((item.device for item in model.buffers()), None))
