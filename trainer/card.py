"""The model card of a run: model, data, hardware and versions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
import importlib.metadata
import json
import platform
import resource
from typing import Any

import torch
from torch import Tensor, nn
from torch.cuda import nccl
from torch.utils import _pytree as pytree

from torchyard.contract.attempts.events import CARD_BYTES
from torchyard.run import accelerator
from trainer.forward import flops, flops_without_weights, inference_seconds
from trainer.sampler import TrainSampler
from trainer.task import Task
from trainer.world import World


@dataclass(frozen=True)
class Card:
    """What `describe` knows before the first step, and the speed and memory that training measures."""

    parameters: int
    trainable_parameters: int
    flops_per_sample: int | None
    """Floating-point operations of the forward pass: a multiply-add counts as two. None if they cannot be counted."""
    inference_seconds: float | None
    """The time of that pass of one sample on the device, in single precision. None if it was not measured."""
    training_samples: int
    global_batch: int
    """Samples of an optimizer step on all ranks together."""
    per_device_batch_size: int
    gradient_accumulation_steps: int
    world_size: int
    device: str
    precision: str
    data_hash: str | None
    """The digest of the data's contents. None until the files are hashed."""
    split_hash: str
    versions: Mapping[str, str | None]
    adapter: Mapping[str, Any] | None = None
    """The base of an adapter, its rank and alpha, and how many layers it updates. None: the run has no adapter."""
    samples_per_second: float | None = None
    peak_memory_bytes: int | None = None
    """The peak memory of the GPU, or of the process on a CPU."""

    def as_dict(self) -> dict[str, Any]:
        """Returns the card as a JSON object."""
        return asdict(self)


def describe(task: Task, *, sampler: TrainSampler, world: World, precision: str, data_hash: str | None) -> Card:
    """Returns the card of a run that has not begun; `precision` is the resolved one, never `auto`.

    The model must not be wrapped or sharded yet. Only rank 0 counts the FLOPs and takes the time, as only its card is
    written.
    """
    parameters = list(task.model.parameters())
    operations, seconds = _forward(task, parameters, world) if world.rank == 0 else (None, None)
    micro_batches = -(-sampler.global_batch // (sampler.batch_size * world.size))
    return Card(
        parameters=sum(parameter.numel() for parameter in parameters),
        trainable_parameters=sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
        flops_per_sample=operations,
        inference_seconds=seconds,
        training_samples=task.samples,
        global_batch=sampler.global_batch,
        per_device_batch_size=sampler.batch_size,
        gradient_accumulation_steps=micro_batches,
        world_size=world.size,
        device=accelerator.name(world.device),
        precision=precision,
        data_hash=data_hash,
        split_hash=task.split_hash,
        versions=versions(),
        adapter=_adapter(task.metadata),
    )


def of_checkpoint(card: Mapping[str, Any], *, trainer: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the card of a run as a checkpoint has it: with the run's configuration, as far as a card has room.

    The largest sections are left out where they are too large: `state.pt` has them all.
    """
    kept, left_out = dict(config), list[str]()
    while _size(whole := {**card, "trainer": trainer, "config": kept} | _lacking(left_out)) > CARD_BYTES and kept:
        largest = max(kept, key=lambda section: _size(kept[section]))
        left_out.append(largest)
        del kept[largest]
    return whole


def peak_memory(device: torch.device) -> int:
    """Returns the peak bytes of tensors on the GPU, or of this process on a CPU."""
    if accelerator.is_accelerator(device):
        return accelerator.peak_memory(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def versions() -> dict[str, str | None]:
    """Returns the versions of Python and of the libraries that compute the result."""
    has_nccl = torch.cuda.is_available() and torch.distributed.is_nccl_available()
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchvision": _installed("torchvision"),
        "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, nccl.version())) if has_nccl else None,
        "torchyard": _installed("torchyard"),
    }


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())


def _lacking(sections: Sequence[str]) -> dict[str, str]:
    return {"config_left_out": f"{', '.join(sections)}: too large for a card, see state.pt"} if sections else {}


def _adapter(metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    adapter = metadata.get("adapter")
    if adapter is None:
        return None
    layers = len(adapter["targets"])
    return {"base": adapter["base"]["name"], "rank": adapter["rank"], "alpha": adapter["alpha"], "layers": layers}


def _forward(task: Task, parameters: Sequence[Tensor], world: World) -> tuple[int | None, float | None]:
    """Returns the FLOPs of a sample, and the time of its forward pass if the model is on the rank's device."""
    if any(parameter.is_meta for parameter in parameters):
        inputs = pytree.tree_map_only(Tensor, lambda tensor: tensor.cpu(), task.example_inputs())
        return _if_countable(flops_without_weights, task.model, inputs), None
    device = parameters[0].device
    inputs = pytree.tree_map_only(Tensor, lambda tensor: tensor.to(device), task.example_inputs())
    operations = _if_countable(flops, task.model, inputs)
    # With `fsdp` the model is still in host memory. What cannot be counted has had no first pass.
    timed = operations is not None and device.type == world.device.type
    return operations, inference_seconds(task.model, inputs) if timed else None


def _if_countable(count: Callable[[nn.Module, Any], int], model: nn.Module, inputs: Any) -> int | None:
    try:
        return count(model, inputs)
    except (RuntimeError, TypeError, ValueError):
        return None


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
