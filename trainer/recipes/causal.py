"""The recipe `causal-lm`: model, data, loss and metrics."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torchyard.contract.recipes import CausalLm
from torchyard.host.collector import paused
from torchyard.run.publishing import Content
from trainer.data.batch import Batch
from trainer.data.scanning import ALONE, Scan
from trainer.data.sequences import SequenceData, load_sequences
from trainer.data.sources import local_path
from trainer.recipes.base import RecipeTask
from trainer.recipes.continuations import continue_prompts, show, to_json
from trainer.recipes.perplexity import TokenTally
from trainer.task import Evaluation, Unfilled
from trainer.weights.language import LanguageModel, Origin, make_language_model, open_origin
from trainer.world import World


@dataclass(frozen=True, kw_only=True)
class LanguageTask(RecipeTask):
    """A language model with its data. A sample is a row: a sequence of tokens, all of which are filled alike."""

    config: CausalLm
    data: SequenceData
    origin: Origin
    language: LanguageModel

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
    def validation_lengths(self) -> Tensor:
        return self.data.val.lengths

    @property
    def counts(self) -> Tensor:
        """The counted tokens of each row."""
        return self.data.train.counted

    @property
    def unfilled(self) -> Unfilled | None:
        return self.language.unfilled

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Returns what the model has computed: the mean cross-entropy of the counted tokens."""
        return outputs

    def evaluate(
        self, world: World | None, *, on_batch: Callable[[], None] = lambda: None, batch_size: int | None = None
    ) -> Evaluation:
        """Measures loss and perplexity, and continues some prompts. A collective if there is a world."""
        tally, wanted = TokenTally(device=self.device), self.config.evaluation
        self.measure(tally, world, on_batch=on_batch, batch_size=batch_size)
        continuations = continue_prompts(
            self.model,
            self.data.val.prompts(wanted.samples),
            origin=self.origin,
            new_tokens=wanted.new_tokens,
            device=self.device,
            world=world,
            on_tokens=on_batch,
        )
        return Evaluation(
            tally.metrics(),
            files={"samples.json": to_json(continuations)} if continuations else {},
            samples=self.validation_samples,
            show=partial(show, continuations),
        )

    def example_inputs(self) -> dict[str, Tensor]:
        """Returns the inputs of a row of median length."""
        return self.training_batch(self.data.train.lengths.median(0).indices[None]).inputs

    def largest_batch(self, count: int) -> Batch:
        """Returns the longest rows."""
        return self.training_batch(self.data.train.longest(count))


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
        origin = open_origin(config, weights=weights, metadata=metadata, confined=scan.confined)
    data = load_sequences(
        local_path(source),
        config.data,
        tokenizer=origin.tokenizer,
        chat_template=origin.tokenizer.chat_template,
        vocabulary=origin.vocabulary,
        base=origin.name,
        on_chunk=scan.beat,
        confined=origin.confined,
    )
    scan.note(data.notes, "info")
    language = make_language_model(origin, config, metadata=metadata, device=device, scan=scan)
    return LanguageTask(
        config=config, model=language.module, data=data, device=device, origin=origin, language=language
    )
