"""The interface between a recipe and the training loop."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from torchyard.run import Run
from torchyard.run.publishing import Content
from trainer.data.batch import Batch
from trainer.data.identity import Identity
from trainer.score import Score
from trainer.world import World


def _nothing(run: Run, step: int) -> None:
    """Shows nothing."""


@dataclass(frozen=True)
class Evaluation:
    """The result of measuring the validation split, the same on every rank."""

    metrics: dict[str, float]
    files: Mapping[str, Content] = field(default_factory=dict[str, Content])
    """Files for the checkpoint of this evaluation: a confusion matrix. Only those of rank 0 are written."""
    samples: int = 0
    """Samples that all ranks together have measured."""
    show: Callable[[Run, int], None] = _nothing
    """Shows what was found at a step, by the run context. Rank 0 alone calls it, while the others go on."""


class Slice(Protocol):
    """A tensor in a file, which is read in parts."""

    @property
    def shape(self) -> torch.Size: ...

    @property
    def dtype(self) -> torch.dtype: ...

    def __getitem__(self, part: tuple[slice, ...], /) -> Tensor: ...


@dataclass(frozen=True)
class Unfilled:
    """The weights of a model on the meta device."""

    weights: dict[str, Slice]
    """By the names of the parameters."""
    on_tensor: Callable[[], None] = lambda: None
    """Called after each one is read."""
    check: Callable[[], None] = lambda: None
    """Called after all are read. Raises DataError if they were changed meanwhile."""


class Task(Protocol):
    """A model with its data and its loss. Every rank has the same task and draws its own batches."""

    @property
    def model(self) -> nn.Module:
        """The model, on the device that `trainer.weights.home` returns, with the same weights on every rank."""
        ...

    @property
    def metadata(self) -> dict[str, Any]:
        """What a checkpoint needs besides the weights to be used elsewhere; it loads with `weights_only=True`."""
        ...

    @property
    def files(self) -> Mapping[str, Content]:
        """Files beside the weights in every checkpoint, such as a tokenizer."""
        ...

    @property
    def description(self) -> str:
        """The data in words: `1531 training and 266 validation pictures of 1×8×8, 10 classes`."""
        ...

    @property
    def samples(self) -> int:
        """Samples of the training split."""
        ...

    @property
    def validation_samples(self) -> int:
        """Samples of the validation split."""
        ...

    @property
    def lengths(self) -> Tensor | None:
        """The length of each training sample, if micro-batches are to have samples of like lengths; on the CPU."""
        ...

    @property
    def counts(self) -> Tensor | None:
        """What each training sample counts in the loss: its counted tokens; None: 1 each. On the CPU."""
        ...

    @property
    def unfilled(self) -> Unfilled | None:
        """The weights of a model on the meta device; None: the model has its weights."""
        ...

    @property
    def identity(self) -> Identity:
        """What tells the data of the source from other data."""
        ...

    @property
    def split_hash(self) -> str:
        """A digest of which samples train and which are held out."""
        ...

    @property
    def score(self) -> Score | None:
        """Counts what the model gets right in training; None if that is no share of anything."""
        ...

    def loss(self, outputs: Any, targets: Any) -> Tensor:
        """Returns the mean loss over what the batch's samples count."""
        ...

    def training_batches(self, plan: Sequence[Tensor], *, epoch: int) -> Iterator[Batch]:
        """Yields the batch of each tensor of sample indices in `plan`, in order. Raises DataError.

        Random changes of a sample (augmentation) depend on the seed, the epoch and the sample alone, so that a run can
        resume anywhere in the plan, on any number of ranks and loader processes. Random changes of a whole batch
        (mixup) draw from the global generators when the batch is taken, never ahead of it.
        """
        ...

    def evaluate(
        self, world: World | None, *, on_batch: Callable[[], None], batch_size: int | None = None
    ) -> Evaluation:
        """Measures the model on each validation sample once. A collective if there is a world.

        `batch_size`: the samples of a batch, if the configuration's batch does not fit in memory. All ranks call the
        model, and `on_batch` after it, equally often. Leaves the model in training mode.
        """
        ...

    def example_inputs(self) -> Any:
        """Returns the inputs of one sample, on the device."""
        ...

    def largest_batch(self, count: int) -> Batch:
        """Returns a batch of `count` training samples that takes as much memory as any. Draws no random numbers."""
        ...
