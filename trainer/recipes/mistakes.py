"""The samples of which a classifier is surest, and wrong."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchyard.run import Run
from trainer.data.loading import to_device
from trainer.world import World

MOST = 16
"""Samples that an evaluation shows."""
KEY = "misclassified"


@dataclass(frozen=True)
class Mistake:
    """A sample of the validation split, by its index, and what it was taken for."""

    index: int
    guess: int
    truth: int
    share: float
    """The share of the guess among the chances of all classes."""

    def caption(self, classes: list[str]) -> str:
        return f"{classes[self.guess]} instead of {classes[self.truth]} ({self.share:.2f})"


class Mistakes:
    """The mistakes of all ranks, each of which has rows of its own: their sum has all."""

    def __init__(self, world: World | None, *, device: torch.device) -> None:
        rank, size = (world.rank, world.size) if world else (0, 1)
        self.sums = torch.zeros(size, MOST, 4, dtype=torch.float64, device=device)
        """Of each: the share of the guess, or 0 for none; the index; the guess; the truth."""
        self._own = self.sums[rank]

    def add(self, outputs: Tensor, targets: Tensor, indices: Tensor) -> None:
        """Adds logits (samples, classes) of the samples with these indices. Does not wait for the device."""
        shares, guesses = outputs.double().softmax(1).nan_to_num(0.0).max(1)
        new = torch.stack([shares * (guesses != targets), to_device(indices, targets.device), guesses, targets], dim=1)
        both = torch.cat([self._own, new])
        self._own.copy_(both[both[:, 0].topk(MOST).indices])

    def found(self) -> list[Mistake]:
        """Returns the mistakes, the surest first. Waits for the device."""
        rows: list[list[float]] = sorted(self.sums.flatten(0, 1).tolist(), reverse=True)[:MOST]
        return [Mistake(int(index), int(guess), int(truth), share) for share, index, guess, truth in rows if share > 0]


def show_confusion(run: Run, matrix: Tensor | None, *, classes: list[str], step: int) -> None:
    """Shows a matrix of counts, if there is one."""
    if matrix is not None:
        run.log_confusion("confusion", matrix.long(), classes=classes, step=step)


def show_pictures(run: Run, mistakes: list[Mistake], pictures: Tensor, *, classes: list[str], step: int) -> None:
    """Shows the pictures (samples, channels, height, width) of the mistakes; of unusual channels the first."""
    shown = pictures if pictures.shape[1] in {1, 3} else pictures[:, :1]
    captions: list[Any] = [mistake.caption(classes) for mistake in mistakes]
    run.log_image(KEY, list(shown), step=step, caption=captions)
