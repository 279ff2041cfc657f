"""`fsdp`: every rank keeps a shard of each parameter, its gradient and its optimizer state."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage] the base of all of them
from torch.optim import Optimizer

from torchyard.contract.errors import ConfigError
from trainer.parallel.filling import fill, own_part
from trainer.parallel.tensors import broadcast, share_buffers
from trainer.task import Unfilled
from trainer.world import World

_LISTS = (nn.ModuleList, nn.Sequential)


class Fsdp:
    """FSDP2: `fully_shard` of each repeated block of a model and of the rest. Raises ConfigError.

    Parameters keep their names and are whole only during forward and backward. Buffers stay whole. The model may be in
    host memory if it does not fit on the device. With `compute`, whole parameters are gathered in that dtype, and
    gradients are added up in fp32; batch norms stay in fp32, as their kernels need it.

    Parameters on the meta device are filled from `unfilled`, of which a rank reads its part alone. A collective, which
    raises DataError on all ranks if the weights are not right.
    """

    local = False
    in_step = True

    def __init__(
        self,
        model: nn.Module,
        world: World,
        *,
        compute: torch.dtype | None = None,
        unfilled: Unfilled | None = None,
    ) -> None:
        self.model = model
        self._root = _shard(model, world, compute)
        if unfilled is not None:
            fill(model, unfilled, world)
        _unshard_once(model)
        self._syncs = True

    def micro_batch(self, *, last: bool) -> AbstractContextManager[object]:
        if last != self._syncs:
            self._root.set_requires_gradient_sync(last)
            self._syncs = last
        return nullcontext()

    def after_step(self, step: int, *, skipped: Tensor) -> None:
        pass

    def sync_ranks(self, *more: Mapping[str, Tensor]) -> None:
        share_buffers(self.model, more)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass


def shard(tensor: Tensor, like: Tensor) -> Tensor:
    """Returns this rank's shard of a whole tensor, sharded as `like` is.

    Returns the tensor itself if `like` is not a shard or has another shape (an optimizer's step count beside its
    parameter). Every rank passes the same tensor. Not a collective.
    """
    if not isinstance(like, DTensor) or tensor.shape != like.shape:
        return tensor
    own = tensor[own_part(like)]
    return DTensor.from_local(
        own.to(like.device_mesh.device_type).contiguous(),
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    )


@torch.no_grad()
def fill_shards(targets: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """Gives each target its value of the whole tensors in `saved`, or this rank's part of it. Not a collective."""
    for name, target in targets.items():
        target.copy_(shard(saved[name], target))


def shard_optimizer(saved: Mapping[str, Any], optimizer: Optimizer) -> dict[str, Any]:
    """Returns the part of an optimizer's whole state that this rank's `optimizer` loads. Not a collective.

    The groups are the optimizer's own: another device has other kernels (`fused`), and they need what is not saved.
    Their learning rate is that of the last step.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]

    def part(value: Any, parameter: Tensor) -> Any:
        moment = isinstance(value, Tensor) and value.ndim > 0 and value.shape == parameter.shape
        return shard(value, parameter) if moment else value

    state = {
        index: {key: part(value, parameters[index]) for key, value in entries.items()}
        for index, entries in saved["state"].items()
    }
    own = optimizer.state_dict()
    groups = [
        {**group, "lr": kept["lr"]} for group, kept in zip(own["param_groups"], saved["param_groups"], strict=True)
    ]
    return {"state": {**own["state"], **state}, "param_groups": groups}


def _shard(model: nn.Module, world: World, compute: torch.dtype | None) -> FSDPModule:
    mesh = init_device_mesh(world.device.type, (world.size,))
    blocks = _blocks(model)
    inside = {module for block in blocks for module in block.modules()}
    parts = {block: [*block.modules()] for block in blocks}
    parts[model] = [module for module in model.modules() if module not in inside]  # the root is the last one
    try:
        for part, modules in parts.items():
            _move(modules, world)
            _shard_part(part, modules, mesh=mesh, compute=compute)
    except (ValueError, NotImplementedError) as error:
        raise ConfigError(f"distributed.strategy: fsdp cannot shard this model: {error}") from error
    assert isinstance(model, FSDPModule)
    return model


def _unshard_once(model: nn.Module) -> None:
    """Makes the whole parameters once: those that are first made in inference mode cannot be trained."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.unshard()
            module.reshard()


def _shard_part(
    part: nn.Module, modules: Sequence[nn.Module], *, mesh: DeviceMesh, compute: torch.dtype | None
) -> None:
    """Shards a part of the model, which owns `modules`. Its batch norms are shards of their own.

    The root's parameters, too, must be shards outside forward and backward: otherwise averaged weights that are written
    to them go into a copy.
    """
    norms: list[nn.Module] = [item for item in modules if isinstance(item, _BatchNorm) and item.affine]
    if norms and part not in norms:
        fully_shard(norms, mesh=mesh, reshard_after_forward=True)
    if compute is None or part in norms:
        policy = MixedPrecisionPolicy()
    else:
        policy = MixedPrecisionPolicy(compute, torch.float32, cast_forward_inputs=False)
    fully_shard(part, mesh=mesh, reshard_after_forward=True, mp_policy=policy)


def _move(modules: Sequence[nn.Module], world: World) -> None:
    """Moves the modules' own tensors to the device, with rank 0's values, and contiguous as shards must be.

    Those on the meta device stay there.
    """

    def moved(tensor: Tensor) -> Tensor:
        return tensor if tensor.is_meta else tensor.to(world.device).contiguous()

    for module in modules:
        module._apply(moved, recurse=False)  # pyright: ignore[reportPrivateUsage] `to` would move inner modules
    own = (item for module in modules for item in (*module.parameters(recurse=False), *module.buffers(recurse=False)))
    broadcast(tensor for tensor in own if not tensor.is_meta)


def _blocks(model: nn.Module) -> list[nn.Module]:
    """Returns the blocks to shard: the outermost items of module lists that share no parameter with other modules."""
    blocks: list[nn.Module] = []
    for block in dict.fromkeys(_parts(model)):
        inside = set(block.modules())
        others = {
            parameter
            for module in model.modules()
            if module not in inside
            for parameter in module.parameters(recurse=False)
        }
        if others.isdisjoint(block.parameters()):
            blocks.append(block)
    return blocks


def _parts(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if type(module) not in _LISTS or _holds_blocks(child):
            yield from _parts(child)
        elif next(child.parameters(), None) is not None:
            yield child


def _holds_blocks(module: nn.Module) -> bool:
    """Returns whether a module is a list of modules with children, or a list that cannot be called."""
    composite = any(next(child.children(), None) is not None for child in module.children())
    return type(module) is nn.ModuleList or (type(module) is nn.Sequential and composite)
