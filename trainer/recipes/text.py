"""The recipe `text-classification`: model, data, loss and metrics."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.recipes import TextClassification
from torchyard.host.collector import paused
from torchyard.models import text
from torchyard.models.tokenizer import TokenizerFiles
from torchyard.run import Run
from torchyard.run.publishing import Content
from trainer.data.batch import Batch
from trainer.data.identity import Identity
from trainer.data.scanning import ALONE, Scan
from trainer.data.sources import local_path
from trainer.data.texts import TextData, load_texts
from trainer.data.tokens import Tokens, tokenize, train_tokenizer
from trainer.recipes.base import RecipeTask
from trainer.recipes.mistakes import KEY, Mistakes, show_confusion
from trainer.recipes.tally import Tally
from trainer.recipes.weighting import ClassLoss, make_loss
from trainer.score import Accuracy
from trainer.task import Evaluation
from trainer.weights.home import home
from trainer.weights.initial import freeze, initialize
from trainer.weights.pretrained import load
from trainer.weights.telling import note_new
from trainer.world import World

METRICS = ("val/loss", "val/accuracy")


@dataclass(frozen=True, kw_only=True)
class TokenData:
    """The tokens of a source of texts."""

    train: Tokens
    val: Tokens
    identity: Identity
    split_hash: str


@dataclass(frozen=True, kw_only=True)
class TextClassifier(RecipeTask):
    """A classifier of texts with its data."""

    config: TextClassification
    data: TokenData
    tokenizer: TokenizerFiles
    classes: list[str]
    class_loss: ClassLoss

    @property
    def metadata(self) -> dict[str, Any]:
        """What a checkpoint needs besides the weights: classes, their weights, tokenizer, the model's configuration."""
        return {
            "classes": self.classes,
            "class_weights": self.class_loss.weights,
            "tokenizer": asdict(self.tokenizer),
            "model_config": text.config_of(self.model),
        }

    @property
    def files(self) -> Mapping[str, Content]:
        """The files with which transformers loads a checkpoint's folder, beside `model.safetensors`."""
        length = self.config.data.max_length
        return text.transformers_files(text.config_of(self.model), self.tokenizer, max_length=length)

    @property
    def description(self) -> str:
        return f"{self.samples} training and {self.validation_samples} validation texts, {len(self.classes)} classes"

    @property
    def lengths(self) -> Tensor | None:
        """Tokens of each training text, if batches are to have texts of like lengths."""
        return self.data.train.lengths if self.config.data.group_by_length else None

    @property
    def validation_lengths(self) -> Tensor:
        return self.data.val.lengths

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Returns the mean weighted cross-entropy of logits with class indices."""
        return self.class_loss(outputs, targets)

    def evaluate(
        self, world: World | None, *, on_batch: Callable[[], None] = lambda: None, batch_size: int | None = None
    ) -> Evaluation:
        """Measures loss, accuracy and the confusion matrix. A collective if there is a world."""
        tally = Tally(classes=len(self.classes), device=self.device)
        mistakes = Mistakes(world, device=self.device)
        self.measure(tally, world, mistakes=mistakes, on_batch=on_batch, batch_size=batch_size)
        metrics = tally.metrics()
        return Evaluation(
            {name: metrics[name] for name in METRICS},
            files=tally.files(self.classes),
            samples=tally.samples,
            show=partial(self._show, mistakes, tally.matrix),
        )

    def example_inputs(self) -> dict[str, Tensor]:
        """Returns the inputs of a text of median length."""
        return self.training_batch(self.data.train.lengths.median(0).indices[None]).inputs

    def largest_batch(self, count: int) -> Batch:
        """Returns the longest texts."""
        return self.training_batch(self.data.train.longest(count))

    def _show(self, mistakes: Mistakes, matrix: Tensor | None, run: Run, step: int) -> None:
        """Shows texts as the model has read them: their tokens, without what was cut."""
        show_confusion(run, matrix, classes=self.classes, step=step)
        if found := mistakes.found():
            decoder = self.tokenizer.encoder(max_length=self.config.data.max_length)
            texts = [decoder.decode(self.data.val.tokens(mistake.index)) for mistake in found]
            captions = [mistake.caption(self.classes) for mistake in found]
            run.log_text(KEY, texts, step=step, caption=captions)


def make_task(
    config: TextClassification,
    *,
    source: str,
    weights: str = "none",
    device: torch.device,
    local_size: int = 1,
    metadata: Mapping[str, Any] | None = None,
    scan: Scan = ALONE,
) -> TextClassifier:
    """Loads the texts from `source` and builds the model. See `trainer.recipes.make_task` for the arguments.

    The model is the one that `metadata` describes, or the one in the directory `weights`. If `weights` is `none`, its
    weights are random and its tokenizer is trained on the training texts. Raises DataError and ConfigError.
    """
    data = load_texts(local_path(source), config.data)
    scan.note(data.notes)
    with paused():  # this imports transformers
        model, tokenizer = (
            _rebuilt(metadata, data, source) if metadata is not None else _new(config, data, weights, scan)
        )
    freeze(model, config.model.freeze)
    train, val = (
        tokenize(
            texts,
            tokenizer=tokenizer,
            max_length=config.data.max_length,
            padding=text.padding(model),
            device=device,
            confined=scan.confined,
        )
        for texts in (data.train, data.val)
    )
    return TextClassifier(
        model=model.to(home(config.distributed, device)),
        config=config,
        tokenizer=tokenizer,
        classes=data.classes,
        data=TokenData(train=train, val=val, identity=data.identity, split_hash=data.split_hash),
        device=device,
        class_loss=make_loss(config.loss, train.labels, classes=len(data.classes), metadata=metadata, device=device),
        score=Accuracy(device),
    )


def _rebuilt(metadata: Mapping[str, Any], data: TextData, source: str) -> tuple[nn.Module, TokenizerFiles]:
    if data.classes != metadata["classes"]:
        raise DataError(f"{source}: the classes are {data.classes}, the checkpoint's {metadata['classes']}")
    return text.rebuild(metadata["model_config"]), TokenizerFiles(**metadata["tokenizer"])


def _new(config: TextClassification, data: TextData, weights: str, scan: Scan) -> tuple[nn.Module, TokenizerFiles]:
    if weights != "none":
        return _loaded(config, data, local_path(weights), scan)
    tokenizer = train_tokenizer(data.train.texts, vocabulary=config.data.vocabulary)
    model = text.build(
        config.model.name,
        vocabulary=tokenizer.vocabulary,
        classes=data.classes,
        dropout=config.model.dropout,
        options=config.model.options,
    )
    initialize(model, [name for name, _ in model.named_parameters()], config.model.init)
    return model, tokenizer


def _loaded(config: TextClassification, data: TextData, folder: Path, scan: Scan) -> tuple[nn.Module, TokenizerFiles]:
    loaded = load(folder, classes=data.classes, dropout=config.model.dropout)
    if config.data.max_length > loaded.longest:
        raise ConfigError(
            f"data.max_length is {config.data.max_length}; the model in {folder} takes {loaded.longest} tokens at most"
        )
    note_new(scan, loaded.model, loaded.new, what=str(folder), expected=loaded.new)
    initialize(loaded.model, loaded.new, config.model.init)
    return loaded.model, loaded.tokenizer
