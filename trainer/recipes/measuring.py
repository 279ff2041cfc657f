"""Measures a model on a split: sums over samples, added up over all ranks."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from trainer.data.batch import Batch
from trainer.recipes.mistakes import Mistakes
from trainer.sampler import evaluation_batches
from trainer.weights.initial import train_mode
from trainer.world import World


class Tally(Protocol):
    """Sums over samples."""

    @property
    def sums(self) -> Tensor:
        """The sums, in float64 on the model's device."""
        ...

    def add(self, outputs: Any, targets: Any) -> None:
        """Adds a batch to the sums."""
        ...


class MeanLoss:
    """The mean of a recipe's `loss` over the samples."""

    def __init__(self, loss: Callable[[Any, Any], Tensor], *, device: torch.device) -> None:
        self._loss = loss
        self.sums = torch.zeros(2, dtype=torch.float64, device=device)

    def add(self, outputs: Any, targets: Tensor) -> None:
        """Adds the mean loss of a batch, times its targets (samples, …). Does not wait for the device."""
        loss = self._loss(outputs, targets).double()
        self.sums += torch.stack([loss * len(targets), loss.new_full((), len(targets))])

    def metrics(self) -> dict[str, float]:
        """Returns the mean. Waits for the device."""
        total, count = self.sums.tolist()
        return {"val/loss": total / count}


def measure(
    model: nn.Module,
    batches: Callable[[list[Tensor]], Iterable[Batch]],
    *,
    samples: int,
    batch_size: int,
    tally: Tally,
    world: World | None,
    lengths: Tensor | None = None,
    mistakes: Mistakes | None = None,
    on_batch: Callable[[], None] = lambda: None,
) -> None:
    """Adds each of `samples` samples to `tally` and to `mistakes` once, on all ranks together.

    A collective if there is a world.

    `batches` returns the batch of each tensor of sample indices. With `lengths`, its samples are of like lengths. The
    number format is that of the caller's autocast. Leaves the model in training mode.
    """
    rank, size = (world.rank, world.size) if world else (0, 1)
    shares = evaluation_batches(samples, batch_size=batch_size, world_size=size, rank=rank, lengths=lengths)
    model.eval()
    try:
        with torch.no_grad():
            for batch, share in zip(batches([share.indices for share in shares]), shares, strict=True):
                outputs = model(batch.inputs)
                if share.counts:
                    tally.add(outputs, batch.targets)
                    if mistakes is not None:
                        mistakes.add(outputs, batch.targets, share.indices)
                on_batch()
    finally:
        train_mode(model)
    if world is not None:
        world.sum(tally.sums)
        if mistakes is not None:
            world.sum(mistakes.sums)
