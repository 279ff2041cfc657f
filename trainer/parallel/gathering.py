"""A state of shards: what rank 0 gathers of it to save it whole, and what each rank has of it to save its own part."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed.tensor import DTensor

from torchyard.states.stateindex import Shard
from trainer.parallel.filling import own_part
from trainer.world import World

BLOCK_BYTES = 2 << 20
"""Of all ranks together, which are gathered at once."""


@torch.no_grad()
def gathered(tree: Any, world: World) -> Any:
    """Returns `tree` (nested dicts, lists and tuples) with whole tensors, on rank 0. A collective.

    They lie in host memory, and nothing else has them. Other ranks, and rank 0 of a tree without shards, get the tree
    as it is. Takes the memory of the whole tensors and that of a block.
    """
    if not bytes_in_shards(tree):
        return tree
    whole = _mapped(tree, _Gathering(world).whole)
    return whole if world.rank == 0 else tree


def shards(tree: Any) -> Any:
    """Returns `tree` with what this rank has of each sharded tensor."""
    made: dict[object, Tensor | Shard] = {}

    def shard_of(tensor: Tensor) -> Tensor | Shard:
        return made.setdefault(_identity(tensor), _shard(tensor))

    return _mapped(tree, shard_of)


def bytes_in_shards(tree: Any) -> int:
    """Returns the bytes of the whole tensors of which each rank has shards."""
    sizes: dict[object, int] = {}

    def note(tensor: Tensor) -> Tensor:
        if isinstance(tensor, DTensor):
            sizes[_identity(tensor)] = tensor.numel() * tensor.itemsize
        return tensor

    _mapped(tree, note)
    return sum(sizes.values())


def _mapped(tree: Any, change: Callable[[Tensor], object]) -> Any:
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, dict):
        return {key: _mapped(value, change) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(_mapped(value, change) for value in tree)
    return tree


def _identity(tensor: Tensor) -> object:
    """Returns what two names of a shared parameter have in common, on every rank, and no other tensor has."""
    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    storage = local.untyped_storage()._cdata  # pyright: ignore[reportPrivateUsage] an empty one has no address
    return storage, local.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


class _Gathering:
    """Gathers tensors block by block, all through the same memory."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._made: dict[object, Tensor] = {}
        piece = max(1, BLOCK_BYTES // world.size)
        self._own, *self._parts = (
            torch.empty(piece, dtype=torch.uint8, device=world.device) for _ in range(1 + world.size)
        )

    def whole(self, tensor: Tensor) -> Tensor:
        """Returns the whole tensor on rank 0, and an empty one on others. Two names of a tensor stay one."""
        key = _identity(tensor)
        if key not in self._made:
            self._made[key] = self._gathered(tensor) if isinstance(tensor, DTensor) else self._copied(tensor)
        return self._made[key]

    def _copied(self, tensor: Tensor) -> Tensor:
        return tensor.detach().to("cpu", copy=True) if self._world.rank == 0 else tensor

    def _gathered(self, tensor: DTensor) -> Tensor:
        (placement,) = tensor.placements
        assert placement.is_shard(0), "fully_shard divides the rows"
        rows = -(-tensor.shape[0] // self._world.size)  # of a rank, of which the last ones may have fewer
        each = rows * tensor.shape[1:].numel() * tensor.itemsize
        local = _bytes_of(tensor.to_local().contiguous())
        whole = torch.empty(tensor.shape if self._world.rank == 0 else 0, dtype=tensor.dtype)
        for start in range(0, each, len(self._own)):
            end = min(start + len(self._own), each)
            there = local[start:end]
            self._own[: len(there)] = there
            parts = [part[: end - start] for part in self._parts]
            distributed.all_gather(parts, self._own[: end - start])
            if self._world.rank == 0:
                for rank, part in enumerate(parts):
                    target = _bytes_of(whole)[rank * each + start : rank * each + end]
                    target.copy_(part[: len(target)])
        return whole


def _bytes_of(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1).view(torch.uint8)


def _shard(tensor: Tensor) -> Tensor | Shard:
    if not isinstance(tensor, DTensor):
        return tensor
    rows = own_part(tensor)[0]
    return Shard(tensor.to_local().detach(), tuple(tensor.shape), rows.start)
