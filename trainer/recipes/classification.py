"""The recipe `image-classification`: what to train, on what, and how to measure it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
import logging
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.recipes import ImageClassification, ImageDataConfig, Normalization
from torchyard.run.publishing import Content
from trainer.data.arrays import load_digits, load_npz
from trainer.data.augment import Augment
from trainer.data.folders import load_folders
from trainer.data.images import IMAGENET, ImageData, Normalizer, measure
from trainer.data.loading import loaders, sent
from trainer.data.mixup import mixed
from trainer.data.sources import local_path
from trainer.models import vision
from trainer.models.home import home
from trainer.models.initial import freeze, initialize
from trainer.models.weights import file_state, fill, is_published, torchvision_state
from trainer.recipes.measuring import measure as measure_model
from trainer.recipes.tally import Tally
from trainer.sampler import evaluation_shares
from trainer.task import Batch, Evaluation
from trainer.world import World

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Classifier:
    """A model with its data, on its device: a `trainer.task.Task`."""

    model: nn.Module
    config: ImageClassification
    data: ImageData
    augment: Augment
    normalization: Normalization
    normalizer: Normalizer
    device: torch.device
    memory_format: torch.memory_format
    workers: int

    @property
    def facts(self) -> dict[str, Any]:
        """What a checkpoint needs besides weights to be used elsewhere."""
        return {
            "classes": self.data.classes,
            "normalization": self.normalization.model_dump(),
            "input": {"channels": self.data.channels, "height": self.data.height, "width": self.data.width},
        }

    @property
    def files(self) -> Mapping[str, Content]:
        """None: the weights and the facts are enough."""
        return {}

    @property
    def description(self) -> str:
        data = self.data
        return (
            f"{len(data.train)} training and {len(data.val)} validation pictures of {data.channels}×{data.height}×"
            f"{data.width}, {len(data.classes)} classes"
        )

    @property
    def samples(self) -> int:
        """In the training split."""
        return len(self.data.train)

    @property
    def data_hash(self) -> str:
        return self.data.data_hash

    @property
    def split_hash(self) -> str:
        return self.data.split_hash

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean cross-entropy of logits with the indices of classes, or with each class's probability."""
        return functional.cross_entropy(outputs, targets, label_smoothing=self.config.loss.label_smoothing)

    def training_batches(self, plan: Sequence[Tensor], *, epoch: int) -> Iterator[Batch]:
        """Augmented and mixed on the device. Raises DataError."""
        if not plan:
            return
        batches = self.data.train.batches(plan, device=self.device, workers=self.workers)
        indices = sent(torch.cat(list(plan)), self.device).split([len(batch) for batch in plan])
        for (pictures, labels), own in zip(batches, indices, strict=True):
            augmented, _ = self.augment.batch(pictures, epoch=epoch, indices=own)
            batch = self._batch(augmented, labels)
            alpha = self.config.loss.mixup
            yield mixed(batch, alpha, classes=len(self.data.classes)) if alpha else batch

    def evaluate(
        self, world: World | None, *, on_batch: Callable[[], None] = lambda: None, batch_size: int | None = None
    ) -> Evaluation:
        """Loss, top-1 and top-5 over the validation split, and the confusion matrix. A collective, with a world."""
        rank, size = (world.rank, world.size) if world else (0, 1)
        batch_size = batch_size or self.config.training.per_device_batch_size
        shares = evaluation_shares(len(self.data.val), batch_size=batch_size, world_size=size, rank=rank)
        plan = [share.indices for share in shares]
        batches = self.data.val.batches(plan, device=self.device, workers=self.workers)
        tally = Tally(classes=len(self.data.classes), device=self.device)
        measure_model(
            self.model,
            (self._batch(*batch) for batch in batches),
            shares,
            tally=tally,
            world=world,
            on_batch=on_batch,
        )
        return Evaluation(tally.metrics(), files=tally.files(self.data.classes), samples=tally.samples)

    def example(self) -> Tensor:
        return self.largest(1).inputs

    def largest(self, count: int) -> Batch:
        """Pictures all have one size, so these are blank."""
        pictures = torch.zeros(count, self.data.channels, self.data.height, self.data.width, device=self.device)
        return self._batch(pictures, torch.zeros(count, dtype=torch.long, device=self.device))

    def _batch(self, pictures: Tensor, labels: Tensor) -> Batch:
        return Batch(self.normalizer(pictures).contiguous(memory_format=self.memory_format), labels)


def make_classifier(
    config: ImageClassification,
    *,
    source: str,
    weights: str = "none",
    device: torch.device,
    local_size: int = 1,
    facts: Mapping[str, Any] | None = None,
) -> Classifier:
    """Loads the data from `source` (`digits`, a path, or a `file://` URL) and builds the model.

    `weights`: `none`, the name of torchvision's, a path or a `file://` URL. `local_size`: ranks on this host. `facts`:
    those of a checkpoint, whose weights the caller loads: nothing is measured then. Raises DataError and ConfigError.
    """
    vision.check_name(config.model.name)
    data = _load(source, config, facts)
    workers = 0 if data.in_memory else loaders(config.data.workers, local_size=local_size)
    model = _model(config, data, weights=None if facts else weights)
    channels = vision.channels_for(config.model.name, data.channels)
    if facts:
        normalization = Normalization.model_validate(facts["normalization"])
    else:
        normalization = _normalization(config, data, channels=channels, source=source, workers=workers)
    channels_last = device.type == "cuda" if config.training.channels_last == "auto" else config.training.channels_last
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    return Classifier(
        model=model.to(device=home(config.distributed, device), memory_format=memory_format),  # pyright: ignore[reportCallIssue] it is no overload
        config=config,
        data=data,
        augment=Augment(config.data.augment, seed=config.training.seed),
        normalization=normalization,
        normalizer=Normalizer(normalization, channels=channels, device=device),
        device=device,
        memory_format=memory_format,
        workers=workers,
    )


def _load(source: str, config: ImageClassification, facts: Mapping[str, Any] | None) -> ImageData:
    wanted = None if config.model.name == vision.SMALL_CNN else 3
    data = _read(source, config.data, channels=facts["input"]["channels"] if facts else wanted)
    if facts and facts["classes"] != data.classes:
        raise DataError(f"the classes of {source} are {data.classes}, the checkpoint's {facts['classes']}")
    return data


def _read(source: str, config: ImageDataConfig, *, channels: int | None) -> ImageData:
    if source == "digits":
        return load_digits(config)
    path = local_path(source)
    if path.is_dir():
        return load_folders(path, config, channels=channels)
    return load_npz(path, config)


def _model(config: ImageClassification, data: ImageData, *, weights: str | None) -> nn.Module:
    """With the weights that it begins with; with any, where those of a checkpoint come and `weights` is None."""
    model = vision.build(
        config.model.name,
        channels=data.channels,
        height=data.height,
        width=data.width,
        classes=len(data.classes),
        for_published=is_published(config.model.weights),
    )
    if weights is not None:
        new = frozenset(name for name, _ in model.named_parameters())
        if weights != "none":
            new = _fill(model, config.model.name, weights)
        initialize(model, new, config.model.init)
    freeze(model, config.model.freeze)
    return model


def _fill(model: nn.Module, name: str, weights: str) -> frozenset[str]:
    tensors = torchvision_state(name, weights) if is_published(weights) else file_state(weights)
    new = fill(model, vision.fitted(model, tensors), what=weights)
    logger.info("model.weights: %s; new: %s", weights, ", ".join(sorted(new)) or "nothing")
    return new


def _normalization(
    config: ImageClassification, data: ImageData, *, channels: int, source: str, workers: int
) -> Normalization:
    wanted = config.data.normalize
    if wanted == "auto":
        values = measure(data.train, in_memory=data.in_memory, workers=workers)
        if values is None:
            raise DataError(f"{source}: the training pictures hold NaN or infinite values")
        return values
    if wanted == "none":
        return Normalization(mean=[0.0], std=[1.0])
    values = IMAGENET if wanted == "imagenet" else wanted
    if len(values.mean) not in {1, channels}:
        raise ConfigError(
            f"data.normalize has {len(values.mean)} channels, the pictures have {channels} for {config.model.name}"
        )
    return values
