"""The loss and the metrics of a model that gives one logit for each pixel."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional

from torchyard.models.segmenter import logit
from torchyard.run.publishing import Content

HALF = {torch.float16, torch.bfloat16}


class PixelLoss:
    """The loss of each picture, at least in single precision. It does not depend on how pictures are batched.

    Binary cross-entropy, averaged over pixels with the weight `pos_weight` for positive ones, plus `dice` times the
    soft Dice loss (Milletari et al., arXiv 1606.04797). 1 is added to numerator and denominator of the Dice ratio, as a
    picture may have no positive pixel.
    """

    def __init__(self, *, pos_weight: float, dice: float, device: torch.device) -> None:
        self._pos_weight = torch.tensor(pos_weight, device=device)
        self._dice = dice

    def __call__(self, logits: Tensor, masks: Tensor) -> Tensor:
        """Returns losses (samples,) for logits and masks of 0 and 1, both (samples, 1, height, width)."""
        logits = logits.float() if logits.dtype in HALF else logits
        truth = masks.to(logits.dtype)
        entropy = functional.binary_cross_entropy_with_logits(
            logits, truth, pos_weight=self._pos_weight, reduction="none"
        ).mean(dim=(1, 2, 3))
        return entropy + self._dice * _soft_dice(logits.sigmoid(), truth) if self._dice else entropy


class PixelTally:
    """Sums in float64 on the device: losses, pictures, true positive, false positive and false negative pixels."""

    def __init__(self, loss: Callable[[Tensor, Tensor], Tensor], *, threshold: float, device: torch.device) -> None:
        self._loss = loss
        self._logit = logit(threshold)
        self.sums = torch.zeros(5, dtype=torch.float64, device=device)

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Adds logits and masks, both (samples, 1, height, width). Does not wait for the device."""
        predicted, truth = outputs > self._logit, targets > 0
        losses = self._loss(outputs, targets).double()
        hits, false_alarms, misses = (predicted & truth).sum(), (predicted & ~truth).sum(), (~predicted & truth).sum()
        self.sums += torch.stack([losses.sum(), losses.new_full((), len(losses)), hits, false_alarms, misses])

    @property
    def samples(self) -> int:
        """Pictures that were added."""
        return int(self.sums[1])

    def metrics(self) -> dict[str, float]:
        """Returns the metrics of all pixels together, not means over pictures. Waits for the device.

        If no pixel is positive in truth or prediction, all ratios are 1; otherwise a ratio with denominator 0 is 0.
        """
        loss, samples, hits, false_alarms, misses = self.sums.tolist()
        nothing = hits + false_alarms + misses == 0

        def ratio(part: float, whole: float) -> float:
            return part / whole if whole else float(nothing)

        return {
            "val/loss": loss / samples,
            "val/iou": ratio(hits, hits + false_alarms + misses),
            "val/dice": ratio(2 * hits, 2 * hits + false_alarms + misses),
            "val/precision": ratio(hits, hits + false_alarms),
            "val/recall": ratio(hits, hits + misses),
        }

    @property
    def matrix(self) -> None:
        """None: the metrics say all."""
        return

    def files(self) -> Mapping[str, Content]:
        """Returns no files."""
        return {}


def _soft_dice(probabilities: Tensor, truth: Tensor) -> Tensor:
    common, sizes = (probabilities * truth).sum(dim=(1, 2, 3)), (probabilities + truth).sum(dim=(1, 2, 3))
    return 1 - (2 * common + 1) / (sizes + 1)
