"""Counts on the device what a model gets right in training, from the outputs that the loss has."""

from typing import Any, Protocol

import torch
from torch import Tensor

from trainer.data.loading import to_device
from trainer.data.masks import IGNORED

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

    def end_step(self, *, skipped: Tensor) -> None:
        """Ends a step: its batches are those since the last call. They count if `skipped` is 0, and not if it is 1."""
        ...

    def take(self) -> Tensor:
        """Returns what was right and of how much, (2,) in float64 on the device, in the steps since the last `take`.

        Their sums over all ranks make the share; it is 1 of nothing.
        """
        ...


class _Kept:
    """Keeps a pair of tensors of each batch, and adds up those of many steps at once. `_count` is the subclass's."""

    def __init__(self, device: torch.device) -> None:
        self._ones: list[Tensor] = []
        self._others: list[Tensor] = []
        self._skipped: list[Tensor] = []
        self._sums = torch.zeros(2, dtype=torch.float64, device=device)

    def end_step(self, *, skipped: Tensor) -> None:
        self._skipped += [skipped] * (len(self._ones) - len(self._skipped))
        if len(self._ones) >= KEPT_BATCHES:
            self._add_up()

    def take(self) -> Tensor:
        self._add_up()
        sums, self._sums = self._sums, torch.zeros_like(self._sums)
        return sums

    def _keep(self, one: Tensor, other: Tensor) -> None:
        self._ones.append(one)
        self._others.append(other)

    def _add_up(self) -> None:
        if self._ones:
            taken = 1 - torch.stack(self._skipped)
            self._sums += self._count(self._ones, self._others, taken)
            self._ones.clear()
            self._others.clear()
            self._skipped.clear()

    def _count(self, ones: list[Tensor], others: list[Tensor], taken: Tensor) -> Tensor:
        """Returns what was right and of how much, (2,), in all kept batches. `taken` is 1 for each that counts."""
        raise NotImplementedError


class Accuracy(_Kept):
    """The share of samples whose class has the largest logit.

    Targets may be the probabilities of classes, as mixup makes them: the most probable class is then the right one.
    """

    name = "train/accuracy"

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Adds logits (samples, classes) and class indices (samples,) or probabilities (samples, classes)."""
        self._keep(outputs.argmax(1), targets if targets.ndim == 1 else targets.argmax(1))

    def _count(self, ones: list[Tensor], others: list[Tensor], taken: Tensor) -> Tensor:
        sizes = [len(one) for one in ones]
        right = torch.cat(ones) == torch.cat(others)
        counts = to_device(torch.tensor(sizes, dtype=torch.double), right.device)
        return torch.stack([torch.stack([part.sum() for part in right.split(sizes)]).double(), counts]) @ taken.double()


class Iou(_Kept):
    """Intersection over union of the positive pixels of all pictures together; `cut` is the least positive logit."""

    name = "train/iou"

    def __init__(self, *, cut: float, device: torch.device) -> None:
        super().__init__(device)
        self._cut = cut

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Adds logits and masks of 0 and 1, both (samples, 1, height, width)."""
        predicted = outputs > self._cut
        self._keep(predicted.logical_and(targets).sum(), predicted.logical_or(targets).sum())

    def _count(self, ones: list[Tensor], others: list[Tensor], taken: Tensor) -> Tensor:
        return torch.stack([torch.stack(ones), torch.stack(others)]).double() @ taken.double()


class ClassIou(_Kept):
    """Intersection over union of the pixels of all classes but the background together, in all pictures."""

    name = "train/iou"

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Adds logits (samples, classes, height, width) and masks of classes and IGNORED (samples, 1, …)."""
        counted = targets != IGNORED
        true, guessed = targets.gt(0).logical_and(counted), outputs.argmax(1, keepdim=True)
        right = true.logical_and(guessed == targets).sum()
        self._keep(right, true.sum() + guessed.gt(0).logical_and(counted).sum() - right)

    def _count(self, ones: list[Tensor], others: list[Tensor], taken: Tensor) -> Tensor:
        return torch.stack([torch.stack(ones), torch.stack(others)]).double() @ taken.double()
