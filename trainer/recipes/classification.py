"""The recipe `image-classification`: what to train, on what, and how to measure it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import torch
from torch import Tensor, nn

from torchyard.errors import ConfigError, DataError
from torchyard.recipes import ImageClassification, ImageDataConfig, Normalization
from trainer.data.arrays import load_digits, load_npz
from trainer.data.folders import load_folders
from trainer.data.images import ImageData, Normalizer, Pictures, measure
from trainer.models import vision
from trainer.recipes.tally import Tally
from trainer.recipes.tally import measure as measure_model
from trainer.sampler import evaluation_batches
from trainer.world import World


@dataclass(frozen=True)
class Classifier:
    """A model with its data, on its device."""

    model: nn.Module
    loss: nn.Module
    data: ImageData
    normalization: Normalization
    channels: int
    """Of the model; grey pictures are repeated where it takes more."""
    device: torch.device
    memory_format: torch.memory_format
    batch_size: int
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
    def samples(self) -> int:
        """In the training split."""
        return len(self.data.train)

    def training_batches(self, plan: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and targets of each batch of indices, on the device. Raises DataError."""
        return self._batches(self.data.train, plan)

    def evaluate(self, world: World | None = None, *, on_batch: Callable[[], None] = lambda: None) -> dict[str, float]:
        """The metrics over the validation split, each sample counted once. A collective, if there is a world."""
        return self.tally(world, on_batch=on_batch).metrics()

    def tally(self, world: World | None = None, *, on_batch: Callable[[], None] = lambda: None) -> Tally:
        rank, size = (world.rank, world.size) if world else (0, 1)
        plan = evaluation_batches(len(self.data.val), batch_size=self.batch_size, rank=rank, world_size=size)
        tally = Tally(classes=len(self.data.classes), device=self.device)
        measure_model(self.model, self._batches(self.data.val, plan), tally=tally, on_batch=on_batch)
        if world:
            world.sum(tally.sums)
        return tally

    def _batches(self, pictures: Pictures, plan: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        normalize = Normalizer(self.normalization, channels=self.channels, device=self.device)
        for images, targets in pictures.batches(plan, device=self.device, workers=self.workers):
            yield normalize(images).contiguous(memory_format=self.memory_format), targets


def make_classifier(
    config: ImageClassification,
    *,
    source: str,
    device: torch.device,
    local_size: int = 1,
    normalization: Normalization | None = None,
    channels: int | None = None,
) -> Classifier:
    """Loads the data from `source` (`digits`, a path, or a `file://` URL) and builds the model, with random weights.

    `normalization` and `channels` are those of a checkpoint; None measures them. `local_size`: ranks on this host.
    Raises DataError and ConfigError.
    """
    vision.check_name(config.model.name)
    data = _load(source, config.data, channels=channels or (None if config.model.name == vision.SMALL_CNN else 3))
    workers = _workers(config.data, in_memory=data.in_memory, local_size=local_size)
    model = vision.build(
        config.model.name,
        channels=data.channels,
        height=data.height,
        width=data.width,
        classes=len(data.classes),
    )
    channels_last = device.type == "cuda" if config.training.channels_last == "auto" else config.training.channels_last
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    return Classifier(
        model=model.to(device=device, memory_format=memory_format),  # pyright: ignore[reportCallIssue] it is no overload
        loss=nn.CrossEntropyLoss(label_smoothing=config.loss.label_smoothing),
        data=data,
        normalization=normalization or _normalization(config, data, source=source, workers=workers),
        channels=vision.channels_for(config.model.name, data.channels),
        device=device,
        memory_format=memory_format,
        batch_size=config.training.per_device_batch_size,
        workers=workers,
    )


def _load(source: str, config: ImageDataConfig, *, channels: int | None) -> ImageData:
    if source == "digits":
        return load_digits(config)
    path = Path(unquote(source.removeprefix("file://")) if source.startswith("file://") else source)
    if path.is_dir():
        return load_folders(path, config, channels=channels)
    return load_npz(path, config)


def _workers(config: ImageDataConfig, *, in_memory: bool, local_size: int) -> int:
    if in_memory:
        return 0
    if config.workers == "auto":
        return min(8, max(1, len(os.sched_getaffinity(0)) // local_size))
    return config.workers


def _normalization(config: ImageClassification, data: ImageData, *, source: str, workers: int) -> Normalization:
    wanted = config.data.normalize
    if wanted == "auto":
        values = measure(data.train, in_memory=data.in_memory, workers=workers)
        if values is None:
            raise DataError(f"{source}: the training pictures hold NaN or infinite values")
        return values
    if wanted == "none":
        return Normalization(mean=[0.0], std=[1.0])
    if wanted == "imagenet":
        return Normalization(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
    if len(wanted.mean) not in {1, data.channels, vision.channels_for(config.model.name, data.channels)}:
        raise ConfigError(f"data.normalize has {len(wanted.mean)} channels, the pictures have {data.channels}")
    return wanted
