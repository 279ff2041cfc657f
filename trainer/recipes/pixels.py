"""The loss and the metrics of one logit for each pixel."""

from collections.abc import Callable
import math

import torch
from torch import Tensor
from torch.nn import functional

HALF = {torch.float16, torch.bfloat16}


class PixelLoss:
    """The loss of each picture, at least in single precision: a mean of it over any samples is that of any batches.

    Binary cross-entropy, a mean over pixels in which positive ones weigh `pos_weight`, plus `dice` times the soft Dice
    loss (Milletari et al., arXiv 1606.04797, with 1 added above and below the line, as a picture may have no positive
    pixel).
    """

    def __init__(self, *, pos_weight: float, dice: float, device: torch.device) -> None:
        self._pos_weight = torch.tensor(pos_weight, device=device)
        self._dice = dice

    def __call__(self, logits: Tensor, masks: Tensor) -> Tensor:
        """(samples,) of logits and masks of 0 and 1, both (samples, 1, height, width)."""
        logits = logits.float() if logits.dtype in HALF else logits
        truth = masks.to(logits.dtype)
        entropy = functional.binary_cross_entropy_with_logits(
            logits, truth, pos_weight=self._pos_weight, reduction="none"
        ).mean(dim=(1, 2, 3))
        return entropy + self._dice * _soft_dice(logits.sigmoid(), truth) if self._dice else entropy


class PixelTally:
    """Sums in float64 on the device: the pictures' losses, pictures, and pixels that are rightly and wrongly marked."""

    def __init__(self, loss: Callable[[Tensor, Tensor], Tensor], *, threshold: float, device: torch.device) -> None:
        self._loss = loss
        self._logit = logit(threshold)
        self.sums = torch.zeros(5, dtype=torch.float64, device=device)

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        predicted, truth = outputs > self._logit, targets > 0
        losses = self._loss(outputs, targets).double()
        right, surplus, missed = (predicted & truth).sum(), (predicted & ~truth).sum(), (~predicted & truth).sum()
        self.sums += torch.stack([losses.sum(), losses.new_full((), len(losses)), right, surplus, missed])

    @property
    def samples(self) -> int:
        return int(self.sums[1])

    def metrics(self) -> dict[str, float]:
        """Of all pixels together, not means over pictures.

        Where no pixel is positive, neither in truth nor predicted, nothing is wrong: all are 1. A ratio of nothing is 0
        otherwise.
        """
        loss, samples, right, surplus, missed = self.sums.tolist()
        nothing = right + surplus + missed == 0

        def ratio(part: float, whole: float) -> float:
            return part / whole if whole else float(nothing)

        return {
            "val/loss": loss / samples,
            "val/iou": ratio(right, right + surplus + missed),
            "val/dice": ratio(2 * right, 2 * right + surplus + missed),
            "val/precision": ratio(right, right + surplus),
            "val/recall": ratio(right, right + missed),
        }


def logit(probability: float) -> float:
    """Where the logistic function is `probability`."""
    return math.log(probability / (1 - probability))


def _soft_dice(chances: Tensor, truth: Tensor) -> Tensor:
    common, sizes = (chances * truth).sum(dim=(1, 2, 3)), (chances + truth).sum(dim=(1, 2, 3))
    return 1 - (2 * common + 1) / (sizes + 1)
