"""What the task of every recipe does, unless the recipe says otherwise: a `trainer.task.Task` with defaults."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from torchyard.contract.recipes import Recipe
from torchyard.run.publishing import Content
from trainer.data.batch import Batch
from trainer.data.identity import Identity
from trainer.recipes.measuring import MeanLoss, Tally, measure
from trainer.recipes.mistakes import Mistakes
from trainer.score import Score
from trainer.task import Evaluation, Unfilled
from trainer.world import World


class Split(Protocol):
    """The samples of a split."""

    def __len__(self) -> int: ...

    @property
    def batches(self) -> Callable[..., Iterator[Any]]:
        """Yields what is at each tensor of indices in a plan, on `device`: a `Batch`, unless the recipe makes it."""
        ...


class Data(Protocol):
    """A source with its two splits."""

    @property
    def train(self) -> Split: ...

    @property
    def val(self) -> Split: ...

    @property
    def identity(self) -> Identity:
        """What tells the data of the source from other data."""
        ...

    @property
    def split_hash(self) -> str:
        """The digest of which samples train and which are held out."""
        ...


@dataclass(frozen=True, kw_only=True)
class RecipeTask:
    """A model with its data. A recipe gives it a `loss`, and overrides what is different."""

    config: Recipe
    model: nn.Module
    data: Data
    device: torch.device
    score: Score | None = None
    """Counts what the model gets right in training. None: only the loss is counted."""

    @property
    def metadata(self) -> dict[str, Any]:
        """What a checkpoint needs besides the weights: nothing."""
        return {}

    @property
    def files(self) -> Mapping[str, Content]:
        """No files: the weights and the metadata are enough."""
        return {}

    @property
    def description(self) -> str:
        return f"{self.samples} training and {self.validation_samples} validation samples"

    @property
    def samples(self) -> int:
        return len(self.data.train)

    @property
    def validation_samples(self) -> int:
        return len(self.data.val)

    @property
    def lengths(self) -> Tensor | None:
        """None: all samples take the same work."""
        return None

    @property
    def validation_lengths(self) -> Tensor | None:
        """The length of each validation sample, if batches are to have samples of like lengths."""
        return None

    @property
    def counts(self) -> Tensor | None:
        """None: all samples have the same weight in the loss."""
        return None

    @property
    def unfilled(self) -> Unfilled | None:
        """None: the model has its weights."""
        return None

    @property
    def identity(self) -> Identity:
        return self.data.identity

    @property
    def split_hash(self) -> str:
        return self.data.split_hash

    def loss(self, outputs: Any, targets: Any) -> Tensor:
        """Returns the mean loss over what the batch's samples count."""
        raise NotImplementedError

    def training_batches(self, plan: Sequence[Tensor], *, epoch: int) -> Iterator[Batch]:
        """Yields the batches of the training split. Nothing in them is random."""
        return self.data.train.batches(plan, device=self.device)

    def validation_batches(self, plan: Sequence[Tensor]) -> Iterable[Batch]:
        """Yields the batches of the validation split."""
        return self.data.val.batches(plan, device=self.device)

    def evaluate(
        self, world: World | None, *, on_batch: Callable[[], None] = lambda: None, batch_size: int | None = None
    ) -> Evaluation:
        """Measures the mean loss. A collective if there is a world."""
        tally = MeanLoss(self.loss, device=self.device)
        self.measure(tally, world, on_batch=on_batch, batch_size=batch_size)
        return Evaluation(tally.metrics(), samples=self.validation_samples)

    def measure(
        self,
        tally: Tally,
        world: World | None,
        *,
        mistakes: Mistakes | None = None,
        on_batch: Callable[[], None],
        batch_size: int | None,
    ) -> None:
        """Adds each validation sample to `tally` and to `mistakes` once. See `trainer.recipes.measuring.measure`."""
        measure(
            self.model,
            self.validation_batches,
            samples=self.validation_samples,
            batch_size=batch_size or self.config.training.per_device_batch_size,
            tally=tally,
            mistakes=mistakes,
            world=world,
            lengths=self.validation_lengths,
            on_batch=on_batch,
        )

    def example_inputs(self) -> Any:
        return self.largest_batch(1).inputs

    def largest_batch(self, count: int) -> Batch:
        """Returns the first samples: all take the same memory."""
        return self.training_batch(torch.arange(min(count, self.samples)))

    def training_batch(self, indices: Tensor) -> Batch:
        """Returns the batch of these samples."""
        return next(self.data.train.batches([indices], device=self.device))
