"""The recipe `image-classification`: model, data, loss and metrics."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
import logging
from typing import Any

import torch
from torch import Tensor, nn

from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.recipes import HF, ImageClassification, ImageDataConfig, Normalization
from torchyard.models import vision
from torchyard.models.normalization import Normalizer
from torchyard.models.pictures import check_size
from torchyard.models.placement import memory_format
from torchyard.run import Run
from trainer.data.arrays import load_digits, load_npz
from trainer.data.augment import Augment
from trainer.data.batch import Batch
from trainer.data.brightness import expect_spread
from trainer.data.folders import load_folders
from trainer.data.images import ImageData, InMemory, choose_normalization
from trainer.data.loading import loader_count, to_device
from trainer.data.mixup import mixup
from trainer.data.scanning import ALONE, Scan
from trainer.data.sources import local_path
from trainer.recipes.base import RecipeTask
from trainer.recipes.batchofone import expect_more_than_one
from trainer.recipes.mistakes import Mistakes, show_confusion, show_pictures
from trainer.recipes.tally import Tally
from trainer.recipes.weighting import ClassLoss, make_loss
from trainer.score import Accuracy
from trainer.task import Evaluation
from trainer.weights.files import crop_fraction, file_state, fill, torchvision_state
from trainer.weights.home import placed
from trainer.weights.initial import freeze, initialize
from trainer.weights.pretrained import picture_state
from trainer.weights.telling import head, note_new
from trainer.world import World

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Classifier(RecipeTask):
    """A classifier of images with its data."""

    config: ImageClassification
    data: ImageData
    augment: Augment
    normalization: Normalization
    normalizer: Normalizer
    memory_format: torch.memory_format
    workers: int
    crop_fraction: float
    class_loss: ClassLoss

    @property
    def metadata(self) -> dict[str, Any]:
        """What a checkpoint needs besides the weights: classes, their weights, normalization, input shape, crop."""
        return {
            "classes": self.data.classes,
            "class_weights": self.class_loss.weights,
            "normalization": self.normalization.model_dump(),
            "crop_fraction": self.crop_fraction,
            "input": {"channels": self.data.channels, "height": self.data.height, "width": self.data.width},
        }

    @property
    def description(self) -> str:
        data = self.data
        return (
            f"{len(data.train)} training and {len(data.val)} validation pictures of {data.channels}×{data.height}×"
            f"{data.width}, {len(data.classes)} classes"
        )

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Returns the mean weighted cross-entropy of logits with class indices, or with class probabilities."""
        return self.class_loss(outputs, targets)

    def training_batches(self, plan: Sequence[Tensor], *, epoch: int) -> Iterator[Batch]:
        """Yields batches that are augmented and mixed on the device. Raises DataError."""
        if not plan:
            return
        batches = self.data.train.batches(plan, device=self.device, workers=self.workers)
        indices = to_device(torch.cat(list(plan)), self.device).split([len(batch) for batch in plan])
        for (pictures, labels), own in zip(batches, indices, strict=True):
            augmented, _ = self.augment.batch(pictures, epoch=epoch, indices=own)
            batch = self._batch(augmented, labels)
            alpha = self.config.loss.mixup
            yield mixup(batch, alpha, classes=len(self.data.classes)) if alpha else batch

    def validation_batches(self, plan: Sequence[Tensor]) -> Iterator[Batch]:
        batches = self.data.val.batches(plan, device=self.device, workers=self.workers)
        return (self._batch(*batch) for batch in batches)

    def evaluate(
        self, world: World | None, *, on_batch: Callable[[], None] = lambda: None, batch_size: int | None = None
    ) -> Evaluation:
        """Measures loss, top-1 and top-5 accuracy and the confusion matrix. A collective if there is a world."""
        tally = Tally(classes=len(self.data.classes), device=self.device)
        mistakes = Mistakes(world, device=self.device)
        self.measure(tally, world, mistakes=mistakes, on_batch=on_batch, batch_size=batch_size)
        files, show = tally.files(self.data.classes), partial(self._show, mistakes, tally.matrix)
        return Evaluation(tally.metrics(), files=files, samples=tally.samples, show=show)

    def largest_batch(self, count: int) -> Batch:
        """Returns blank pictures: all pictures have the same size."""
        pictures = torch.zeros(count, self.data.channels, self.data.height, self.data.width, device=self.device)
        return self._batch(pictures, torch.zeros(count, dtype=torch.long, device=self.device))

    def _show(self, mistakes: Mistakes, matrix: Tensor | None, run: Run, step: int) -> None:
        show_confusion(run, matrix, classes=self.data.classes, step=step)
        if found := mistakes.found():
            indices = torch.tensor([mistake.index for mistake in found])
            pictures, _ = next(self.data.val.batches([indices], device=torch.device("cpu"), workers=0))
            show_pictures(run, found, pictures, classes=self.data.classes, step=step)

    def _batch(self, pictures: Tensor, labels: Tensor) -> Batch:
        return Batch(self.normalizer(pictures).contiguous(memory_format=self.memory_format), labels)


def make_task(
    config: ImageClassification,
    *,
    source: str,
    weights: str = "none",
    device: torch.device,
    local_size: int = 1,
    metadata: Mapping[str, Any] | None = None,
    scan: Scan = ALONE,
) -> Classifier:
    """Loads the data from `source` and builds the model. See `trainer.recipes.make_task` for the arguments.

    `source`: `digits`, a path or a `file://` URL. `weights`: `none`, the name of torchvision weights, a path or a
    `file://` URL. Raises DataError and ConfigError.
    """
    vision.check_name(config.model.name)
    cropped = _crop_fraction(config, weights, metadata)
    data = _load(source, config, metadata, crop_fraction=cropped, scan=scan)
    check_size(data.height, data.width)
    batches = -(-len(data.train) // config.training.per_device_batch_size)
    workers = 0 if data.in_memory else loader_count(config.data.workers, local_size=local_size, batches=batches)
    model = _model(config, data, weights=None if metadata else weights, scan=scan)
    channels = vision.channels_for(config.model.name, data.channels)
    if not metadata:
        shape = (channels, data.height, data.width)
        expect_more_than_one(model, shape, config, samples=len(data.train), scan=scan)
    if metadata:
        normalization = Normalization.model_validate(metadata["normalization"])
    else:
        expect_spread(data.train, source)
        normalization = _normalization(config, data, channels=channels, workers=workers)
    for part in (data.train, data.val):
        if isinstance(part, InMemory):
            part.place(device)  # before anything is tried in the memory that is left
    return Classifier(
        model=placed(model, config, device),
        config=config,
        data=data,
        augment=Augment(config.data.augment, seed=config.training.seed),
        normalization=normalization,
        normalizer=Normalizer(normalization, channels=channels, device=device),
        device=device,
        memory_format=memory_format(config, device),
        workers=workers,
        crop_fraction=cropped,
        class_loss=make_loss(
            config.loss, data.train.labels, classes=len(data.classes), metadata=metadata, device=device
        ),
        score=Accuracy(device),
    )


def _crop_fraction(config: ImageClassification, weights: str, metadata: Mapping[str, Any] | None) -> float:
    if metadata is not None:
        return metadata["crop_fraction"]
    # The resolution of the data is kept without a size, and so is the whole picture.
    return crop_fraction(config.model.name, weights) if vision.is_published(weights) and config.data.image_size else 1.0


def _load(
    source: str,
    config: ImageClassification,
    metadata: Mapping[str, Any] | None,
    *,
    crop_fraction: float,
    scan: Scan,
) -> ImageData:
    wanted = None if config.model.name == vision.SMALL_CNN else 3
    channels = metadata["input"]["channels"] if metadata else wanted
    data = _read(source, config.data, channels=channels, crop_fraction=crop_fraction, scan=scan)
    if metadata and metadata["classes"] != data.classes:
        raise DataError(f"the classes of {source} are {data.classes}, the checkpoint's {metadata['classes']}")
    return data


def _read(source: str, config: ImageDataConfig, *, channels: int | None, crop_fraction: float, scan: Scan) -> ImageData:
    if source == "digits":
        return load_digits(config, crop_fraction=crop_fraction)
    path = local_path(source)
    if path.is_dir():
        return load_folders(path, config, channels=channels, crop_fraction=crop_fraction, scan=scan)
    return load_npz(path, config, crop_fraction=crop_fraction)


def _model(config: ImageClassification, data: ImageData, *, weights: str | None, scan: Scan) -> nn.Module:
    """Returns the model with its initial weights. None: any weights, as the caller loads those of a checkpoint."""
    model = vision.build(
        config.model.name,
        channels=data.channels,
        height=data.height,
        width=data.width,
        classes=len(data.classes),
        for_published=vision.is_published(config.model.weights),
        options=config.model.options,
    )
    if weights is not None:
        new = frozenset(name for name, _ in model.named_parameters())
        if weights != "none":
            new = _fill(model, config.model.name, weights)
            note_new(scan, model, new, what=weights, expected=head(model, classes=len(data.classes)))
        initialize(model, new, config.model.init)
    freeze(model, config.model.freeze)
    return model


def _fill(model: nn.Module, name: str, weights: str) -> frozenset[str]:
    new = fill(model, vision.fit_position_embeddings(model, _weights(model, name, weights)), what=weights)
    logger.info("model.weights: %s; new: %s", weights, ", ".join(sorted(new)) or "nothing")
    return new


def _weights(model: nn.Module, name: str, weights: str) -> dict[str, Tensor]:
    if vision.is_published(weights):
        return torchvision_state(name, weights)
    path = local_path(weights)
    return picture_state(model, path) if name.startswith(HF) and path.is_dir() else file_state(weights)


def _normalization(config: ImageClassification, data: ImageData, *, channels: int, workers: int) -> Normalization:
    values = choose_normalization(config.data.normalize, data.train, in_memory=data.in_memory, workers=workers)
    if len(values.mean) not in {1, channels}:
        raise ConfigError(
            f"data.normalize has {len(values.mean)} channels, the pictures have {channels} for {config.model.name}"
        )
    return values
