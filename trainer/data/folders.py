"""Pictures in class folders, decoded when a batch needs them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
import os
from pathlib import Path

import torch
from torch import Tensor

from torchyard.contract.errors import DataError
from torchyard.contract.recipes import ImageDataConfig
from torchyard.models.decoding import decode, header
from trainer.data.digests import split_digest
from trainer.data.identity import identity_of_files
from trainer.data.images import ImageData, split_indices
from trainer.data.loading import load_batches, to_device

MAX_CHECKED = 10_000
"""At most this many headers are read before training, evenly spaced. Other files are checked when they are decoded."""


@dataclass(frozen=True)
class _Format:
    """The form of every decoded picture; `resize`: a file's own size may differ."""

    channels: int
    height: int
    width: int
    resize: bool


class FolderPictures:
    """One split: the files of pictures and their labels."""

    def __init__(self, files: Sequence[Path], labels: Tensor, form: _Format) -> None:
        self._files = [str(file) for file in files]
        self._labels = labels
        self._form = form

    def __len__(self) -> int:
        return len(self._files)

    def batches(self, plan: Sequence[Tensor], *, device: torch.device, workers: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields pictures and labels of each batch of indices in `plan`, on `device`. Raises DataError."""
        for pictures, labels in load_batches(self._load, plan, workers=workers, device=device):
            yield to_device(pictures, device), to_device(labels, device)

    def _load(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        pictures = torch.stack([_picture(self._files[index], self._form) for index in indices.tolist()])
        return pictures, self._labels[indices]


def load_folders(root: Path, config: ImageDataConfig, *, channels: int | None = None) -> ImageData:
    """Loads `train/<class>/*` and `val/<class>/*`, or `<class>/*` and splits it. Raises DataError.

    `channels`: the channels of the model; None takes 1 if all files are grey, else 3.
    """
    has_splits = (root / "train").is_dir() and (root / "val").is_dir()
    parent = root / "train" if has_splits else root
    classes = _folders(parent)
    if len(classes) < 2:
        raise DataError(f"{parent} has {len(classes)} class folders; at least two are needed")
    if has_splits:
        unknown = sorted(set(_folders(root / "val")) - set(classes))
        if unknown:
            raise DataError(f"{root / 'val' / unknown[0]}: this class is not in {root / 'train'}")
        files, labels = _files(root / "train", classes)
        val_files, val_labels = _files(root / "val", classes, may_be_absent=True)
    else:
        all_files, all_labels = _files(root, classes)
        kept, held_out = split_indices(all_labels, fraction=config.val_fraction, seed=config.split_seed)
        files, labels = [all_files[index] for index in kept.tolist()], all_labels[kept]
        val_files, val_labels = [all_files[index] for index in held_out.tolist()], all_labels[held_out]
    if not val_files:
        raise DataError(f"{root}: there is no picture for validation")
    form = _inspect([*files, *val_files], config.image_size, channels)
    return ImageData(
        FolderPictures(files, labels, form),
        FolderPictures(val_files, val_labels, form),
        classes,
        channels=form.channels,
        height=form.height,
        width=form.width,
        in_memory=False,
        identity=identity_of_files(root, [*files, *val_files]),
        split_hash=split_digest(*([path.relative_to(root).as_posix() for path in part] for part in (files, val_files))),
    )


def _folders(root: Path) -> list[str]:
    try:
        with os.scandir(root) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise DataError(f"{root} cannot be read: {error.strerror}") from error
    return names


def _files(root: Path, classes: Sequence[str], *, may_be_absent: bool = False) -> tuple[list[Path], Tensor]:
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        folder = root / name
        if may_be_absent and not folder.exists():
            continue
        try:
            found = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
        except OSError as error:
            raise DataError(f"{folder} cannot be read: {error.strerror}") from error
        if not found and not may_be_absent:
            raise DataError(f"{folder} is empty")
        files += found
        labels += [label] * len(found)
    return files, torch.tensor(labels)


def _inspect(files: Sequence[Path], image_size: int | None, channels: int | None) -> _Format:
    first, _ = header(files[0])
    grey = True
    step = max(1, len(files) // MAX_CHECKED)
    for file in files[::step]:
        size, is_grey = header(file)
        grey = grey and is_grey
        if image_size is None and size != first:
            raise DataError(_differs(str(file), size, first))
    width, height = (image_size, image_size) if image_size else first
    return _Format(channels or (1 if grey else 3), height, width, resize=image_size is not None)


def _picture(file: str, form: _Format) -> Tensor:
    wanted = (form.width, form.height)
    pixels = decode(file, channels=form.channels, size=wanted if form.resize else None)
    _, height, width = pixels.shape
    if (width, height) != wanted:
        raise DataError(_differs(file, (width, height), wanted))
    return pixels


def _differs(file: str, size: tuple[int, int], wanted: tuple[int, int]) -> str:
    sizes = f"{size[0]}×{size[1]} pixels, the first one {wanted[0]}×{wanted[1]}"
    return f"{file} has {sizes}: set data.image_size"
