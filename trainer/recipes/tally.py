"""Measuring a classifier: sums over samples, added up over all ranks, divided once."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

TOP = 5


class Tally:
    """Sums over samples, in float64 on the device: cross-entropy, right answers, right within TOP, samples."""

    def __init__(self, *, classes: int, device: torch.device) -> None:
        self._has_top = classes > TOP
        self.sums = torch.zeros(4, dtype=torch.float64, device=device)

    def add(self, logits: Tensor, targets: Tensor) -> None:
        right = logits.argmax(1) == targets
        top = (logits.topk(TOP).indices == targets[:, None]).any(1) if self._has_top else right
        loss = functional.cross_entropy(logits.double(), targets, reduction="sum")
        self.sums += torch.stack([loss, right.sum().double(), top.sum().double(), loss.new_full((), len(targets))])

    def metrics(self) -> dict[str, float]:
        loss, right, top, samples = self.sums.tolist()
        metrics = {"val/loss": loss / samples, "val/accuracy": right / samples}
        return metrics | ({"val/accuracy_top5": top / samples} if self._has_top else {})

    @property
    def samples(self) -> int:
        return int(self.sums[3])


def measure(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    tally: Tally,
    on_batch: Callable[[], None] = lambda: None,
) -> None:
    """Adds `batches` to `tally`, in single precision whatever the training's: the result is that of the weights.

    The model is left in training mode.
    """
    model.eval()
    with torch.inference_mode():
        for inputs, targets in batches:
            tally.add(model(inputs), targets)
            on_batch()
    model.train()
