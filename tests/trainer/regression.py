"""A task in double precision that is small enough to check by hand."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from torchyard.run.publishing import Content
from trainer.data.batch import Batch
from trainer.data.identity import Identity
from trainer.score import Score
from trainer.task import Evaluation
from trainer.world import World

SAMPLES = 30


class Regression:
    """A model from three numbers to one, with `extra` modules before the last layer.

    `values`: the results of the evaluations, one an epoch.
    """

    description = "30 samples"
    metadata: dict[str, Any] = {}
    files: Mapping[str, Content] = {}
    samples = validation_samples = SAMPLES
    score: Score | None = None
    lengths = unfilled = None
    counts: Tensor | None = None
    identity, split_hash = Identity(digest="0" * 64), "0" * 64

    def __init__(self, *extra: nn.Module, values: Sequence[float] = ()) -> None:
        torch.manual_seed(0)
        self.inputs = torch.randn(SAMPLES, 3, dtype=torch.float64)
        self.targets = torch.randn(SAMPLES, 1, dtype=torch.float64)
        self.model: nn.Module = nn.Sequential(nn.Linear(3, 5), *extra, nn.Tanh(), nn.Linear(5, 1)).double()
        self.values = list(values)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.mse_loss(outputs, targets)

    def training_batches(self, plan: Sequence[Tensor], *, epoch: int) -> Iterator[Batch]:
        return (Batch(self.inputs[batch], self.targets[batch]) for batch in plan)

    def evaluate(
        self, world: World | None, *, on_batch: Callable[[], None], batch_size: int | None = None
    ) -> Evaluation:
        return Evaluation({"val/loss": self.values.pop(0)} if self.values else {})

    def example_inputs(self) -> Tensor:
        return self.inputs[:1]

    def largest_batch(self, count: int) -> Batch:
        return Batch(self.inputs[:count], self.targets[:count])


class CountedRegression(Regression):
    """The regression with samples that count 1 to 9 in its loss, as a text counts its tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = torch.arange(SAMPLES) * 7 % 9 + 1
        self.targets = torch.cat([self.targets, self.counts[:, None]], dim=1)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        wanted, counts = targets.split(1, dim=1)
        return (counts * (outputs - wanted).square()).sum() / counts.sum()
