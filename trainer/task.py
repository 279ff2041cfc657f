"""What a recipe gives to the training loop."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn

from torchyard.run.publishing import Content
from trainer.world import World


class Batch(NamedTuple):
    """A micro-batch on the rank's device."""

    inputs: Any
    """What the model takes as its one argument: a tensor, or a dict of tensors."""
    targets: Any
    """What the loss takes beside the model's outputs: a tensor, or a tuple of tensors."""


@dataclass(frozen=True)
class Evaluation:
    """What was measured on the validation split, the same on every rank."""

    metrics: dict[str, float]
    files: Mapping[str, Content] = field(default_factory=dict[str, Content])
    """For the checkpoint of this evaluation: overlays, a confusion matrix. Only rank 0's are written."""
    samples: int = 0
    """That were measured, on all ranks together."""


class Task(Protocol):
    """A model with its data and its loss. Every rank has the same one, but for the data that it draws."""

    @property
    def model(self) -> nn.Module:
        """Where `trainer.models.home` says, with the same weights on every rank."""
        ...

    @property
    def metadata(self) -> dict[str, Any]:
        """What a checkpoint needs besides weights to be used elsewhere; loads with `weights_only=True`."""
        ...

    @property
    def files(self) -> Mapping[str, Content]:
        """What lies beside the weights in every checkpoint: a tokenizer, say."""
        ...

    @property
    def description(self) -> str:
        """The data for people: `1531 training and 266 validation pictures of 1×8×8, 10 classes`."""
        ...

    @property
    def samples(self) -> int:
        """In the training split."""
        ...

    @property
    def data_hash(self) -> str:
        """Of the source: the same where no sample was added, taken away or changed."""
        ...

    @property
    def split_hash(self) -> str:
        """Of which samples train and which are held out."""
        ...

    def loss(self, outputs: Any, targets: Any) -> Tensor:
        """The mean over the batch's samples."""
        ...

    def training_batches(self, plan: Sequence[Tensor], *, epoch: int) -> Iterator[Batch]:
        """The batch of each tensor of sample indices, in order. Raises DataError.

        What is drawn by chance (augmentation) depends on the seed, the epoch and the sample alone: so a run may go on
        anywhere in the plan, on any number of ranks and loader processes. What depends on a whole batch (mixup) draws
        from torch's own generator when the batch is taken, never ahead of it.
        """
        ...

    def evaluate(
        self, world: World | None, *, on_batch: Callable[[], None], batch_size: int | None = None
    ) -> Evaluation:
        """Measures `model` as it is now, each validation sample once. A collective; without a world, of no one else.

        `batch_size`: samples at once, where as many as the configuration says do not fit the memory. Every rank calls
        the model, and then `on_batch`, equally often. The model is left in training mode.
        """
        ...

    def example(self) -> Any:
        """The inputs of one sample, on the device."""
        ...

    def largest(self, count: int) -> Batch:
        """A batch of `count` training samples that takes as much memory as any. Draws nothing by chance."""
        ...
