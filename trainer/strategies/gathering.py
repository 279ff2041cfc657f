"""A state of shards: what rank 0 gathers of it to save it whole, and what each rank has of it to save its own part."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed.tensor import DTensor

from torchyard.run.stateindex import Shard
from trainer.strategies.filling import own_part
from trainer.world import World

BLOCK_BYTES = 4 << 20
"""Of all ranks together, which are gathered at once."""


@torch.no_grad()
def gathered(tree: Any, world: World) -> Any:
    """Returns `tree` (nested dicts, lists and tuples) with whole tensors, on rank 0. A collective.

    They lie in host memory, and nothing else has them. Other ranks get the tree as it is. Takes the memory of the whole
    tensors and that of a block.
    """
    made: dict[object, Tensor] = {}

    def whole_of(tensor: Tensor) -> Tensor:
        return _whole(tensor, made, world)

    whole = _mapped(tree, whole_of)
    return whole if world.rank == 0 else tree


def shards(tree: Any) -> Any:
    """Returns `tree` with what this rank has of each sharded tensor."""
    made: dict[object, Tensor | Shard] = {}

    def shard_of(tensor: Tensor) -> Tensor | Shard:
        return made.setdefault(_identity(tensor), _shard(tensor))

    return _mapped(tree, shard_of)


def bytes_in_shards(tree: Any) -> int:
    """Returns the bytes of the whole tensors of which each rank has shards."""
    found: dict[object, int] = {}

    def note(tensor: Tensor) -> Tensor:
        if isinstance(tensor, DTensor):
            found[_identity(tensor)] = tensor.numel() * tensor.itemsize
        return tensor

    _mapped(tree, note)
    return sum(found.values())


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


def _whole(tensor: Tensor, made: dict[object, Tensor], world: World) -> Tensor:
    key = _identity(tensor)
    if key in made:
        return made[key]
    if isinstance(tensor, DTensor):
        whole = _gather(tensor, world)
    else:
        whole = tensor.detach().to("cpu", copy=True) if world.rank == 0 else tensor
    return made.setdefault(key, whole)


def _gather(tensor: DTensor, world: World) -> Tensor:
    """Returns the whole tensor on rank 0, and an empty one on others. Gathers rows of all ranks block by block."""
    (placement,) = tensor.placements
    assert placement.is_shard(0), "fully_shard divides the rows"
    local, rest = tensor.to_local().contiguous(), tensor.shape[1:]
    most = -(-tensor.shape[0] // world.size)  # rows of a rank, of which the last ones may have fewer
    step = max(1, BLOCK_BYTES // max(1, world.size * rest.numel() * tensor.itemsize))
    whole = torch.empty(tensor.shape if world.rank == 0 else 0, dtype=tensor.dtype)
    for start in range(0, most, step):
        rows = min(step, most - start)
        own = local.new_zeros(rows, *rest)
        there = local[start : start + rows]
        own[: len(there)] = there
        block = [torch.empty_like(own) for _ in range(world.size)]
        distributed.all_gather(block, own)
        if world.rank == 0:
            for rank, part in enumerate(block):
                first = rank * most + start
                end = min((rank + 1) * most, tensor.shape[0], first + rows)
                if first < end:
                    whole[first:end].copy_(part[: end - first])
    return whole


def _shard(tensor: Tensor) -> Tensor | Shard:
    if not isinstance(tensor, DTensor):
        return tensor
    rows = own_part(tensor)[0]
    return Shard(tensor.to_local().detach(), tuple(tensor.shape), rows.start)
