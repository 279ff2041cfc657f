"""The model card of a run: what was trained, on what, with what."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
import importlib.metadata
import platform
import resource
from typing import Any

import torch
from torch import Tensor, nn
from torch.cuda import nccl
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode

from torchyard.contract.recipes import Recipe
from trainer.task import Task
from trainer.world import World


@dataclass(frozen=True)
class Card:
    """What `describe` knows before the first step, and what only training tells."""

    parameters: int
    trainable_parameters: int
    flops_per_sample: int | None
    """Of the forward pass, a multiplication and an addition counting as two; None where they cannot be counted."""
    training_samples: int
    global_batch: int
    """Samples of an optimizer step, of all ranks together."""
    per_device_batch_size: int
    gradient_accumulation_steps: int
    world_size: int
    device: str
    precision: str
    data_hash: str
    split_hash: str
    versions: Mapping[str, str | None]
    samples_per_second: float | None = None
    peak_memory_bytes: int | None = None
    """Of the device; on a CPU of the process."""

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def describe(task: Task, *, config: Recipe, world: World, precision: str) -> Card:
    """The card of a run that has not begun; `precision` is the one that `auto` came to.

    The model must not be wrapped or sharded yet. Rank 0's is the one that counts: others leave out what takes time.
    """
    parameters = list(task.model.parameters())
    training = config.training
    return Card(
        parameters=sum(parameter.numel() for parameter in parameters),
        trainable_parameters=sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
        flops_per_sample=_flops_if_countable(task.model, _beside(task.example(), parameters))
        if world.rank == 0
        else None,
        training_samples=task.samples,
        global_batch=training.per_device_batch_size * training.gradient_accumulation_steps * world.size,
        per_device_batch_size=training.per_device_batch_size,
        gradient_accumulation_steps=training.gradient_accumulation_steps,
        world_size=world.size,
        device=torch.cuda.get_device_name(world.device) if world.device.type == "cuda" else "CPU",
        precision=precision,
        data_hash=task.data_hash,
        split_hash=task.split_hash,
        versions=versions(),
    )


def flops(model: nn.Module, inputs: Any) -> int:
    """Of the forward pass of `inputs` in evaluation mode: multiplications and additions of its products.

    The model is as it was afterwards: modes, buffers, and the state of torch's generators.
    """
    modes = [(module, module.training) for module in model.modules()]
    parameter = next(model.parameters(), None)
    devices = [parameter.device] if parameter is not None and parameter.device.type == "cuda" else []
    fast = torch.backends.mha.get_fastpath_enabled()
    counter = FlopCounterMode(display=False)
    model.eval()
    # The fused kernels of attention have no count of their own on every device; the plain products have.
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.random.fork_rng(devices), torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
            model(inputs)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for module, training in modes:
            module.training = training
    return counter.get_total_flops()


def peak_memory(device: torch.device) -> int:
    """The most bytes that tensors took of the GPU so far, or this process of the memory on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def versions() -> dict[str, str | None]:
    """Of what computed the result."""
    has_nccl = torch.cuda.is_available() and torch.distributed.is_nccl_available()
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchvision": _installed("torchvision"),
        "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, nccl.version())) if has_nccl else None,
        "torchyard": _installed("torchyard"),
    }


def _beside(inputs: Any, parameters: Sequence[Tensor]) -> Any:
    """The inputs where the parameters are."""
    device = parameters[0].device
    return pytree.tree_map_only(Tensor, lambda tensor: tensor.to(device), inputs)


def _flops_if_countable(model: nn.Module, inputs: Any) -> int | None:
    try:
        return flops(model, inputs)
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return None


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
