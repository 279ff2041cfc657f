"""Measuring a model: sums over samples, added up over all ranks."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from trainer.models.initial import train_mode
from trainer.sampler import Share
from trainer.task import Batch
from trainer.world import World


class Tally(Protocol):
    @property
    def sums(self) -> Tensor:
        """In float64, on the model's device."""
        ...

    def add(self, outputs: Any, targets: Any) -> None: ...


def measure(
    model: nn.Module,
    batches: Iterable[Batch],
    shares: Sequence[Share],
    *,
    tally: Tally,
    world: World | None,
    on_batch: Callable[[], None] = lambda: None,
) -> None:
    """Adds the batches of `shares` to `tally`, then those of all ranks. A collective, if there is a world.

    In single precision whatever the training's: the result is that of the weights. Leaves the model in training mode.
    """
    model.eval()
    try:
        with torch.no_grad():
            for batch, share in zip(batches, shares, strict=True):
                outputs = model(batch.inputs)
                if share.counts:
                    tally.add(outputs, batch.targets)
                on_batch()
    finally:
        train_mode(model)
    if world is not None:
        world.sum(tally.sums)
