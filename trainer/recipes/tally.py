"""The metrics of a classifier, from sums over samples."""

from collections.abc import Sequence
import json

import torch
from torch import Tensor
from torch.nn import functional

TOP = 5
"""An answer counts for `val/accuracy_top5` if the right class is among this many best guesses."""

MAX_CONFUSION = 1000
"""With more classes than this there is no confusion matrix."""

_SUMS = 4


class Tally:
    """Sums over samples: cross-entropy, right answers, right answers within TOP, samples, confusion matrix."""

    def __init__(self, *, classes: int, device: torch.device) -> None:
        self._classes = classes
        self._confusion = classes <= MAX_CONFUSION
        self.sums = torch.zeros(_SUMS + self._confusion * classes**2, dtype=torch.float64, device=device)

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Adds logits (samples, classes) and class indices (samples,) to the sums. Does not wait for the device."""
        guesses = outputs.argmax(1)
        right = guesses == targets
        top = (outputs.topk(TOP).indices == targets[:, None]).any(1) if self._classes > TOP else right
        loss = functional.cross_entropy(outputs.double(), targets, reduction="sum")
        self.sums[:_SUMS] += torch.stack(
            [loss, right.sum().double(), top.sum().double(), loss.new_full((), len(right))]
        )
        if self._confusion:
            self.sums[_SUMS:].index_add_(0, targets * self._classes + guesses, right.new_ones(len(right)).double())

    def metrics(self) -> dict[str, float]:
        """Returns the means. Waits for the device."""
        loss, right, top, samples = self.sums[:_SUMS].tolist()
        metrics = {"val/loss": loss / samples, "val/accuracy": right / samples}
        return metrics | ({"val/accuracy_top5": top / samples} if self._classes > TOP else {})

    @property
    def samples(self) -> int:
        """Samples that were added."""
        return int(self.sums[_SUMS - 1])

    @property
    def matrix(self) -> Tensor | None:
        """A row of counts for each true class; None above MAX_CONFUSION classes."""
        return self.sums[_SUMS:].long().reshape(self._classes, self._classes) if self._confusion else None

    def files(self, names: Sequence[str]) -> dict[str, bytes]:
        """Returns `confusion.json`, the whole matrix, if there is one."""
        if (matrix := self.matrix) is None:
            return {}
        return {"confusion.json": json.dumps({"classes": list(names), "matrix": matrix.tolist()}).encode()}
