"""Advice about a lack of memory: how much was wanted and free, and which batch needs less."""

from dataclasses import dataclass
import math
import re

from torchyard.contract.recipes.training import Recipe
from torchyard.contract.spec.resources import Resources

_SIZE = r"([0-9.]{1,20} ?(?:bytes|[KMGTP]iB))"
_WANTED = re.compile(rf"(?:Tried to allocate|wanted) {_SIZE}")
_FREE = re.compile(rf"of which {_SIZE} is free|free {_SIZE}")
_TOTAL = re.compile(rf"total capacity of {_SIZE}|free {_SIZE} of (?P<host>[0-9.]{{1,20}} ?[KMGTP]iB)")
_UNUSED = re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated")
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}


@dataclass(frozen=True)
class Shortage:
    """Sizes from an allocator's message, as it wrote them, such as `79.10 GiB`. None: it did not say."""

    wanted: str | None
    free: str | None
    total: str | None
    unused: str | None
    """Held by PyTorch on a GPU in pieces that are too small."""
    on_host: bool
    """Of the host's memory, not of a GPU's."""

    def __str__(self) -> str:
        wanted = f"tried to allocate {self.wanted}" if self.wanted else ""
        whole = f" of {self.total}" if self.total else ""
        free = f"{self.free}{whole} {'of the host ' if self.on_host else ''}was free" if self.free else ""
        unused = f"{self.unused} was reserved by PyTorch but unallocated" if self.unused else ""
        return "; ".join(part for part in (wanted, free, unused) if part)


def shortage(message: str) -> Shortage:
    """Returns what an allocator's message says, of PyTorch for GPUs or of `torchyard.run.memory` for the host."""
    total = _TOTAL.search(message)
    return Shortage(
        wanted=_group(_WANTED.search(message)),
        free=_group(_FREE.search(message)),
        total=total and (total["host"] or total[1]),
        unused=_group(_UNUSED.search(message)),
        on_host=total is not None and total["host"] is not None,
    )


def steps(shortage: Shortage, recipe: Recipe | None, resources: Resources) -> list[str]:
    """Returns what needs less memory, or gives more, the most promising first."""
    proposed = _of_recipe(recipe) if recipe is not None else ["Take smaller batches."]
    if _is_fragmented(shortage):
        proposed.append(
            "Set env.PYTORCH_CUDA_ALLOC_CONF to expandable_segments:True: PyTorch had reserved enough, but in pieces."
        )
    if shortage.total and not shortage.on_host and resources.device != "cpu":
        more = math.floor(_bytes(shortage.total) / _UNITS["GiB"]) + 1
        proposed.append(f"Or set resources.min_memory_gb to {more} or more: this GPU has {shortage.total}.")
    return [step for step in proposed if step]


def _of_recipe(recipe: Recipe) -> list[str]:
    return [_smaller_batch(recipe), *(f"Or {step}." for step in recipe.less_memory)]


def _smaller_batch(recipe: Recipe) -> str:
    """Proposes the next smaller micro-batch that keeps the global batch."""
    training, distributed = recipe.training, recipe.distributed
    size, accumulated = training.per_device_batch_size, training.gradient_accumulation_steps
    if size == 1:
        return ""
    factor = next((factor for factor in range(2, math.isqrt(size) + 1) if size % factor == 0), size)
    if distributed.static_graph:
        return (
            f"Set training.per_device_batch_size to {size // factor}. The global batch gets smaller, as"
            " distributed.static_graph cannot accumulate gradients."
        )
    automatic = "" if training.auto_batch or distributed.strategy == "fsdp" else " Or set training.auto_batch to true."
    return (
        f"Set training.per_device_batch_size to {size // factor} and gradient_accumulation_steps to"
        f" {accumulated * factor}: the same global batch.{automatic}"
    )


def _is_fragmented(shortage: Shortage) -> bool:
    return bool(shortage.unused and shortage.wanted and _bytes(shortage.unused) > _bytes(shortage.wanted))


def _bytes(size: str) -> float:
    number = size.rstrip("bytesKMGTPiB ")
    try:
        return float(number) * _UNITS[size[len(number) :].strip()]
    except ValueError:  # a job may write `1.2.3 GiB`
        return 0.0


def _group(match: re.Match[str] | None) -> str | None:
    return None if match is None else next((item for item in match.groups() if item), None)
