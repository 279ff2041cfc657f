"""Counts on the device what a model gets right in training, from the outputs that the loss has."""

from typing import Any, Protocol

import torch
from torch import Tensor

KEPT_BATCHES = 64
"""Batches whose classes or pixels are kept before they are added up: an operation for all is cheaper than one for each.
"""


class Score(Protocol):
    """A share that a recipe measures while it trains: `train/accuracy`, `train/iou`."""

    @property
    def name(self) -> str:
        """The name of the metric."""
        ...

    def add(self, outputs: Any, targets: Any) -> None:
        """Adds a training batch. Does not wait for the device."""
        ...

    def take(self) -> Tensor:
        """Returns what was right and of how much, (2,) in float64 on the device, since the last `take`.

        Their sums over all ranks make the share; it is 1 of nothing.
        """
        ...


class Accuracy:
    """The share of samples whose class has the largest logit.

    Targets may be the probabilities of classes, as mixup makes them: the most probable class is then the right one.
    """

    name = "train/accuracy"

    def __init__(self, device: torch.device) -> None:
        self._guesses: list[Tensor] = []
        self._classes: list[Tensor] = []
        self._sums = torch.zeros(2, dtype=torch.float64, device=device)

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Adds logits (samples, classes) and class indices (samples,) or probabilities (samples, classes)."""
        self._guesses.append(outputs.argmax(1))
        self._classes.append(targets if targets.ndim == 1 else targets.argmax(1))
        if len(self._guesses) == KEPT_BATCHES:
            self._add_up()

    def take(self) -> Tensor:
        self._add_up()
        sums, self._sums = self._sums, torch.zeros_like(self._sums)
        return sums

    def _add_up(self) -> None:
        if self._guesses:
            right = torch.cat(self._guesses) == torch.cat(self._classes)
            self._sums += torch.stack([right.sum(), right.new_full((), len(right), dtype=torch.long)])
            self._guesses.clear()
            self._classes.clear()


class Iou:
    """Intersection over union of the positive pixels of all pictures together; `cut` is the least positive logit."""

    name = "train/iou"

    def __init__(self, *, cut: float, device: torch.device) -> None:
        self._cut = cut
        self._common: list[Tensor] = []
        self._either: list[Tensor] = []
        self._sums = torch.zeros(2, dtype=torch.float64, device=device)

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Adds logits and masks of 0 and 1, both (samples, 1, height, width)."""
        predicted = outputs > self._cut
        self._common.append(predicted.logical_and(targets).sum())
        self._either.append(predicted.logical_or(targets).sum())
        if len(self._common) == KEPT_BATCHES:
            self._add_up()

    def take(self) -> Tensor:
        self._add_up()
        sums, self._sums = self._sums, torch.zeros_like(self._sums)
        return sums

    def _add_up(self) -> None:
        if self._common:
            self._sums += torch.stack([torch.stack(self._common).sum(), torch.stack(self._either).sum()])
            self._common.clear()
            self._either.clear()
