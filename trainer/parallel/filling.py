"""Fills the shards of a model whose parameters are on the meta device: each rank reads its own part of the weights."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from torchyard.contract.errors import DataError
from trainer.task import Slice, Unfilled
from trainer.world import World


@torch.no_grad()
def fill(model: nn.Module, unfilled: Unfilled, world: World) -> None:
    """Gives the shards on the meta device memory on this rank's device, and their part of the weights. A collective.

    A tensor is cast to the dtype that its parameter has. A shared parameter is filled once, by any of its names.
    Raises DataError, on all ranks, if weights are missing, of another shape, torn, changed or not finite on any rank.
    """
    empty = {name: parameter for name, parameter in model.named_parameters() if parameter.is_meta}
    names, weights = _all_names(model), unfilled.weights
    _allocate(model, world.device)
    failure, finite = None, dict[str, Tensor]()
    try:
        for name, parameter in empty.items():
            weight = next((weights[other] for other in names[id(parameter)] if other in weights), None)
            if weight is None or weight.shape != parameter.shape:
                raise DataError(_unfit(name, parameter, weight))
            local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
            if local.numel():  # a rank may have no row of a small one
                local.copy_(weight[own_part(parameter)])
            finite[name] = local.isfinite().all()
            unfilled.on_tensor()
        unfilled.check()
    except DataError as error:
        failure = error.message
    raise_together(failure or _not_finite(finite), world)


def own_part(like: Tensor) -> tuple[slice, ...]:
    """Returns where in the whole tensor this rank's shard is, if `like` is a shard: all of it otherwise."""
    if not isinstance(like, DTensor):
        return tuple(slice(0, size) for size in like.shape)
    shape, offset = compute_local_shape_and_global_offset(like.shape, like.device_mesh, like.placements)
    return tuple(slice(start, start + size) for start, size in zip(offset, shape, strict=True))


def raise_together(failure: str | None, world: World) -> None:
    """Raises DataError on all ranks if there is a failure on any: that of the first one. A collective."""
    first = next((said for said in world.gather(failure or "") if said), None)
    if first is not None:
        raise DataError(first)


def _all_names(model: nn.Module) -> dict[int, list[str]]:
    """Returns the names of each parameter, by its identity: a shared one has several."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return names


def _allocate(model: nn.Module, device: torch.device) -> None:
    """Gives each tensor on the meta device memory on `device`. FSDP2 notices that its shards are others."""

    def allocated(tensor: Tensor) -> Tensor:
        return torch.empty_like(tensor, device=device) if tensor.is_meta else tensor

    model._apply(allocated)  # pyright: ignore[reportPrivateUsage] `to_empty` would empty the tensors with values, too


def _unfit(name: str, parameter: Tensor, weight: Slice | None) -> str:
    if weight is None:
        return f"model.weights: there is no {name}"
    return f"model.weights: {name} is {tuple(weight.shape)}, and the model's is {tuple(parameter.shape)}"


def _not_finite(finite: Mapping[str, Tensor]) -> str | None:
    """Names the first part with a value that is no finite number. Waits for the device once."""
    if not finite:
        return None
    flags: list[bool] = torch.stack(list(finite.values())).tolist()
    wrong = next(_named(finite, flags), None)
    return None if wrong is None else f"model.weights: {wrong} has a value that is not a finite number"


def _named(finite: Mapping[str, Tensor], flags: list[bool]) -> Iterator[str]:
    return (name for name, flag in zip(finite, flags, strict=True) if not flag)
