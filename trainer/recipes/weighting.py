"""The weights of classes in a loss (docs/decisions/0083)."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from torchyard.contract.errors import ConfigError
from torchyard.contract.recipes import ClassificationLoss, ClassWeights, TextLoss
from trainer.recipes.pixels import HALF


def class_weights(wanted: ClassWeights, counts: Sequence[int]) -> list[float] | None:
    """Returns the weight of each class, of which the training split has `counts` samples or pixels. None: all are 1.

    `auto` is all / (classes that occur × count of the class), so that each class weighs as much as any other and the
    mean weight of the samples is 1. A class that does not occur has the weight 1. Raises ConfigError.
    """
    if wanted == "none":
        return None
    if wanted == "auto":
        share = sum(counts) / sum(count > 0 for count in counts)
        return [share / count if count else 1.0 for count in counts]
    if len(wanted) != len(counts):
        raise ConfigError(f"loss.class_weights has {len(wanted)} numbers, the data {len(counts)} classes")
    return wanted


def make_loss(
    config: ClassificationLoss | TextLoss,
    labels: Tensor,
    *,
    classes: int,
    metadata: Mapping[str, Any] | None,
    device: torch.device,
) -> "ClassLoss":
    """Returns the loss that a configuration asks for; weights are those of `metadata`, or of the training `labels`.

    Raises ConfigError.
    """
    if metadata is not None:
        weights = metadata.get("class_weights")
    else:
        weights = class_weights(config.class_weights, labels.bincount(minlength=classes).tolist())
    return ClassLoss(weights=weights, smoothing=config.label_smoothing, device=device)


class ClassLoss:
    """The mean over the samples of cross-entropy times weight. It does not depend on how samples are batched.

    A smoothed target, and one that mixup has blended, has a share of each class: each share is weighted by its class.
    """

    def __init__(self, *, weights: Sequence[float] | None, smoothing: float, device: torch.device) -> None:
        self.weights = None if weights is None else list(weights)
        self._tensor = None if weights is None else torch.tensor(weights, device=device)
        self._smoothing = smoothing

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Returns the loss of logits with class indices, or with class probabilities."""
        if self._tensor is None:
            return functional.cross_entropy(outputs, targets, label_smoothing=self._smoothing)
        logits = outputs.float() if outputs.dtype in HALF else outputs
        losses = functional.cross_entropy(
            logits, targets, weight=self._tensor.to(logits.dtype), label_smoothing=self._smoothing, reduction="none"
        )
        return losses.mean()  # torch's own mean divides by the weights of the batch
