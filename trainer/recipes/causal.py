"""The recipe `causal-lm`: model, data, loss and metrics."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from torchyard.contract.recipes import CausalLm
from torchyard.host.collector import paused
from torchyard.run.publishing import Content
from trainer.data.batch import Batch
from trainer.data.identity import Identity
from trainer.data.scanning import ALONE, Scan
from trainer.data.sequences import SequenceData, load_sequences
from trainer.data.sources import local_path
from trainer.recipes.continuations import continue_prompts, show, to_json
from trainer.recipes.measuring import measure
from trainer.recipes.perplexity import TokenTally
from trainer.task import Evaluation, Unfilled
from trainer.weights.language import LanguageModel, Origin, make_language_model, open_origin
from trainer.world import World


@dataclass(frozen=True)
class LanguageTask:
    """A language model with its data: a `trainer.task.Task`. A sample is a row: a sequence of tokens."""

    origin: Origin
    language: LanguageModel
    config: CausalLm
    data: SequenceData
    device: torch.device

    @property
    def model(self) -> nn.Module:
        return self.language.module

    @property
    def metadata(self) -> dict[str, Any]:
        """What a checkpoint needs besides the weights: the model, and an adapter's base or the tokenizer."""
        return {**self.language.metadata, "form": self.data.form}

    @property
    def files(self) -> Mapping[str, Content]:
        """The files with which transformers loads a checkpoint's folder; of an adapter, what it is."""
        return self.language.files

    @property
    def description(self) -> str:
        train, length = self.data.train, self.config.data.max_length
        tokens, counted = int(train.lengths.sum()), int(train.counted.sum())
        padding = f", {1 - tokens / (len(train) * length):.1%} padding" if self.config.data.packing else ""
        return (
            f"{len(train):,} training and {len(self.data.val):,} validation sequences of at most {length:,} tokens"
            f"{padding}; {counted:,} of {tokens:,} training tokens are counted"
        )

    @property
    def samples(self) -> int:
        """Rows of the training split."""
        return len(self.data.train)

    @property
    def validation_samples(self) -> int:
        return len(self.data.val)

    @property
    def lengths(self) -> None:
        """Rows are filled alike."""
        return None

    @property
    def counts(self) -> Tensor:
        """The counted tokens of each row."""
        return self.data.train.counted

    @property
    def unfilled(self) -> Unfilled | None:
        return self.language.unfilled

    @property
    def identity(self) -> Identity:
        return self.data.identity

    @property
    def split_hash(self) -> str:
        return self.data.split_hash

    @property
    def score(self) -> None:
        """Nothing is counted but the loss."""
        return None

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Returns what the model has computed: the mean cross-entropy of the counted tokens."""
        return outputs

    def training_batches(self, plan: Sequence[Tensor], *, epoch: int) -> Iterator[Batch]:
        """Yields batches that are padded to their longest row. Nothing in them is random."""
        return self.data.train.batches(plan, device=self.device)

    def evaluate(
        self, world: World | None, *, on_batch: Callable[[], None] = lambda: None, batch_size: int | None = None
    ) -> Evaluation:
        """Measures loss and perplexity, and continues some prompts. A collective if there is a world."""
        tally, val, wanted = TokenTally(device=self.device), self.data.val, self.config.evaluation
        measure(
            self.model,
            partial(val.batches, device=self.device),
            samples=len(val),
            batch_size=batch_size or self.config.training.per_device_batch_size,
            tally=tally,
            world=world,
            lengths=val.lengths,
            on_batch=on_batch,
        )
        found = continue_prompts(
            self.model,
            val.prompts(wanted.samples),
            origin=self.origin,
            new_tokens=wanted.new_tokens,
            device=self.device,
            world=world,
            on_tokens=on_batch,
        )
        return Evaluation(
            tally.metrics(),
            files={"samples.json": to_json(found)} if found else {},
            samples=len(val),
            show=partial(show, found),
        )

    def example_inputs(self) -> dict[str, Tensor]:
        """Returns the inputs of a row of median length."""
        return self._batch(self.data.train.lengths.median(0).indices[None]).inputs

    def largest_batch(self, count: int) -> Batch:
        """Returns the longest rows."""
        return self._batch(self.data.train.longest(count))

    def _batch(self, rows: Tensor) -> Batch:
        return next(self.data.train.batches([rows], device=self.device))


def make_task(
    config: CausalLm,
    *,
    source: str,
    weights: str = "none",
    device: torch.device,
    local_size: int = 1,
    metadata: Mapping[str, Any] | None = None,
    scan: Scan = ALONE,
) -> LanguageTask:
    """Opens the base and tokenizes the examples in `source`. See `trainer.recipes.make_task` for the arguments.

    `weights`: the folder of the base; `none`: the one that the configuration names. Raises DataError and ConfigError.
    """
    with paused():  # this imports transformers
        origin = open_origin(config, weights=weights, metadata=metadata)
    data = load_sequences(
        local_path(source),
        config.data,
        tokenizer=origin.tokenizer,
        chat_template=origin.tokenizer.chat_template,
        vocabulary=origin.vocabulary,
        base=origin.name,
        on_chunk=scan.beat,
    )
    scan.note(data.notes, "info")
    language = make_language_model(origin, config, metadata=metadata, device=device, scan=scan)
    return LanguageTask(origin=origin, language=language, config=config, data=data, device=device)
