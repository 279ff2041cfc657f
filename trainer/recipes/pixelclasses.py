"""The loss and the metrics of a model that gives one logit for each class of each pixel."""

from collections.abc import Callable, Sequence
import json

import torch
from torch import Tensor
from torch.nn import functional

from trainer.data.masks import IGNORED
from trainer.recipes.pixels import HALF


class ClassPixelLoss:
    """The loss of each picture, at least in single precision. It does not depend on how pictures are batched.

    Cross-entropy, each pixel times the weight of its class, averaged over the pixels that are not IGNORED, plus `dice`
    times the soft Dice loss, a mean over the classes, with 1 added to numerator and denominator of each ratio.
    """

    def __init__(self, *, weights: Sequence[float] | None, dice: float, device: torch.device) -> None:
        self._weights = None if weights is None else torch.tensor(weights, device=device)
        self._dice = dice

    def __call__(self, logits: Tensor, masks: Tensor) -> Tensor:
        """Returns losses (samples,) for logits (samples, classes, height, width) and masks (samples, 1, …)."""
        logits = logits.float() if logits.dtype in HALF else logits
        counted = masks != IGNORED
        # One row for each pixel: the kernels for rows are deterministic on CUDA, those for pictures are not.
        entropy = functional.cross_entropy(
            logits.permute(0, 2, 3, 1).flatten(0, 2),
            masks.flatten().long(),
            weight=None if self._weights is None else self._weights.to(logits.dtype),
            ignore_index=IGNORED,
            reduction="none",
        ).reshape(len(logits), -1)
        losses = entropy.sum(1) / counted.flatten(1).sum(1).clamp(min=1)
        return losses + self._dice * _soft_dice(logits, masks, counted) if self._dice else losses


class ClassPixelTally:
    """Sums in float64 on the device: losses, pictures, and pixels by true and predicted class."""

    def __init__(
        self, loss: Callable[[Tensor, Tensor], Tensor], *, classes: Sequence[str], device: torch.device
    ) -> None:
        self._loss, self._classes = loss, list(classes)
        self.sums = torch.zeros(2 + len(classes) ** 2, dtype=torch.float64, device=device)

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Adds logits (samples, classes, height, width) and masks (samples, 1, …). Does not wait for the device."""
        losses = self._loss(outputs, targets).double()
        self.sums[:2] += torch.stack([losses.sum(), losses.new_full((), len(losses))])
        counted = targets != IGNORED
        cells = targets.long() * len(self._classes) + outputs.argmax(1, keepdim=True)
        self.sums[2:].index_add_(0, torch.where(counted, cells, 0).flatten(), counted.flatten().double())

    @property
    def samples(self) -> int:
        """Pictures that were added."""
        return int(self.sums[1])

    def metrics(self) -> dict[str, float]:
        """Returns the metrics of all pixels together. Waits for the device.

        IoU and Dice are means over the classes that occur in truth or prediction; without any pixel all ratios are 1.
        """
        loss, samples = self.sums[:2].tolist()
        matrix = self.matrix
        right, either = matrix.diag(), _either(matrix)
        occurs = either > 0
        total = matrix.sum()

        def mean(ratios: Tensor) -> float:
            return ratios[occurs].mean().item() if total else 1.0

        return {
            "val/loss": loss / samples,
            "val/iou": mean(right / either),
            "val/dice": mean(2 * right / (either + right)),
            "val/accuracy": (right.sum() / total).item() if total else 1.0,
        }

    def files(self) -> dict[str, bytes]:
        """Returns `confusion.json`: a row of pixels for each true class, and each class's IoU; null without pixels."""
        matrix = self.matrix
        iou = [
            right / either if either else None
            for right, either in zip(matrix.diag().tolist(), _either(matrix).tolist(), strict=True)
        ]
        content = {"classes": self._classes, "matrix": matrix.long().tolist(), "iou": iou}
        return {"confusion.json": json.dumps(content).encode()}

    @property
    def matrix(self) -> Tensor:
        """A row of pixels for each true class, on the CPU. Waits for the device."""
        return self.sums[2:].reshape(len(self._classes), len(self._classes)).cpu()


def _either(matrix: Tensor) -> Tensor:
    """Returns the pixels of each class in truth, prediction or both."""
    return matrix.sum(0) + matrix.sum(1) - matrix.diag()


def _soft_dice(logits: Tensor, masks: Tensor, counted: Tensor) -> Tensor:
    classes = torch.arange(logits.shape[1], device=logits.device)[:, None, None]
    truth = (masks == classes).to(logits.dtype)
    chances = logits.softmax(1) * counted
    common, sizes = (chances * truth).sum(dim=(2, 3)), (chances + truth).sum(dim=(2, 3))
    return (1 - (2 * common + 1) / (sizes + 1)).mean(1)
