"""Labelled pictures, in memory or on disk, and their normalization."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from torchyard.contract.recipes import Normalization
from torchyard.models.normalization import IMAGENET
from torchyard.run.accelerator import free_memory, is_accelerator
from trainer.data.identity import Identity
from trainer.data.loading import to_device

MAX_MEASURED = 2048
"""A normalization is measured on at most this many pictures on disk, evenly spaced."""


class Pictures(Protocol):
    """One split. Its batches are (samples, channels, height, width), uint8 or floats of 0…1."""

    def __len__(self) -> int: ...

    def batches(self, plan: Sequence[Tensor], *, device: torch.device, workers: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields pictures and labels of each batch of indices in `plan`, on `device`. Raises DataError."""
        ...


class LabelledPictures(Pictures, Protocol):
    """One split, whose labels are known without its pictures."""

    @property
    def labels(self) -> Tensor: ...


@dataclass(frozen=True)
class ImageData:
    """A source with its two splits; `channels`, `height` and `width` are those of every picture."""

    train: LabelledPictures
    val: LabelledPictures
    classes: list[str]
    channels: int
    height: int
    width: int
    in_memory: bool
    identity: Identity
    split_hash: str
    """The digest of which samples train and which are held out."""


class InMemory:
    """Pictures in one tensor."""

    def __init__(self, pictures: Tensor, labels: Tensor) -> None:
        self.pictures = pictures
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    def place(self, device: torch.device) -> None:
        """Moves the pictures to an accelerator if they take a small part of its free memory."""
        if is_accelerator(device) and self.pictures.nbytes < free_memory(device) / 8:
            self.pictures, self.labels = self.pictures.to(device), self.labels.to(device)

    def batches(
        self, plan: Sequence[Tensor], *, device: torch.device, workers: int = 0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields pictures and labels of each batch of indices in `plan`, on `device`."""
        if not plan:
            return
        # One copy of all indices: a copy before each batch would take longer.
        indices = to_device(torch.cat(list(plan)), self.pictures.device)
        for batch in indices.split([len(item) for item in plan]):
            yield to_device(self.pictures[batch], device), to_device(self.labels[batch], device)


def choose_normalization(
    wanted: Normalization | Literal["auto", "none", "imagenet"], pictures: Pictures, *, in_memory: bool, workers: int
) -> Normalization:
    """Returns the normalization that a configuration asks for; `auto` measures the training `pictures`."""
    match wanted:
        case "auto":
            return measure(pictures, in_memory=in_memory, workers=workers)
        case "none":
            return Normalization(mean=[0.0], std=[1.0])
        case "imagenet":
            return IMAGENET
        case _:
            return wanted


def measure(pictures: Pictures, *, in_memory: bool, workers: int) -> Normalization:
    """Returns mean and standard deviation of each channel over all pictures in memory, or MAX_MEASURED on disk."""
    count = len(pictures) if in_memory else min(len(pictures), MAX_MEASURED)
    # Pictures on disk may be large: 8 of 2048×2048 pixels take 0.8 GB in double precision.
    plan = list((torch.arange(count) * len(pictures) // count).split(256 if in_memory else 8))
    total = squares = torch.zeros(1, dtype=torch.float64)
    pixels = 0
    for batch, _ in pictures.batches(plan, device=torch.device("cpu"), workers=workers):
        values = batch.double().transpose(0, 1).flatten(1)
        if batch.dtype == torch.uint8:
            values /= 255
        total = total + values.sum(1)
        squares = squares + values.square().sum(1)
        pixels += values.shape[1]
    mean = total / pixels
    std = (squares / pixels - mean.square()).clamp(min=0).sqrt()
    return Normalization(mean=mean.tolist(), std=torch.where(std > 1e-6, std, 1.0).tolist())


def split_indices(labels: Tensor, *, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Returns the indices to train on and to hold out: the same share of each class, but never all of it."""
    generator = torch.Generator().manual_seed(seed)
    train: list[Tensor] = []
    val: list[Tensor] = []
    for label in labels.unique():
        members = (labels == label).nonzero().flatten()
        members = members[torch.randperm(len(members), generator=generator)]
        held_out = min(max(round(len(members) * fraction), 1), len(members) - 1)
        val.append(members[:held_out])
        train.append(members[held_out:])
    return torch.cat(train).sort().values, torch.cat(val).sort().values
