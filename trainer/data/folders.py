"""Pictures in class folders or in shards of them, decoded when a batch needs them."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchyard.contract.bundles.shards import is_hidden
from torchyard.contract.errors import DataError
from torchyard.contract.recipes import ImageDataConfig
from torchyard.models.decoding import Resize, decode
from trainer.data.brightness import expect_bright
from trainer.data.decoded import Decoded, fill
from trainer.data.digests import split_digest
from trainer.data.images import ImageData, split_indices
from trainer.data.loading import load_batches, to_device
from trainer.data.picturefiles import PictureFile, header_of, opened
from trainer.data.scanning import ALONE, Files, Scan
from trainer.data.shardnames import labelled
from trainer.data.shards import is_sharded, listing, read_shards, shared_files
from trainer.data.splits import left_out, split_names

MAX_CHECKED = 10_000
"""At most this many headers are read before training, evenly spaced. Other files are checked when they are decoded."""


@dataclass(frozen=True)
class _Format:
    """The form of every decoded picture; `resize` is None if every file must have this size."""

    channels: int
    height: int
    width: int
    resize: Resize | None
    crop_fraction: float


class FolderPictures:
    """One split: the files of pictures and their labels. `indexes`: those of the pictures in the cache."""

    def __init__(
        self,
        files: Sequence[PictureFile],
        labels: Tensor,
        form: _Format,
        *,
        indexes: Sequence[int],
        cache: Decoded | None,
    ) -> None:
        self._files = list(zip(files, indexes, strict=True))
        self.labels = labels
        self._load = partial(_pictures, form, cache)

    def __len__(self) -> int:
        return len(self._files)

    def batches(self, plan: Sequence[Tensor], *, device: torch.device, workers: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields pictures and labels of each batch of indices in `plan`, on `device`. Raises DataError."""
        files = ([self._files[index] for index in batch.tolist()] for batch in plan)
        for batch, pictures in zip(plan, load_batches(self._load, files, workers=workers, device=device), strict=True):
            yield to_device(pictures, device), to_device(self.labels[batch], device)


def load_folders(
    root: Path,
    config: ImageDataConfig,
    *,
    channels: int | None = None,
    crop_fraction: float = 1.0,
    scan: Scan = ALONE,
) -> ImageData:
    """Loads `train/<class>/*` and `val/<class>/*`, or `<class>/*` and splits it, or shards. Raises DataError.

    `channels`: the channels of the model; None takes 1 if all files are grey, else 3. `crop_fraction`: see
    `torchyard.models.decoding.fit`. A collective of the ranks that look through the source.
    """
    scanned = scan.share(partial(_look_through, root, config, channels, scan))
    files = Files(root, scanned["files"], digest=scanned["digest"], stamp=scanned["stamp"])
    scan.compare(files)
    scan.note(scanned["notes"])
    members, names = scanned.get("members"), scanned.get("names", files.names)
    sources = [str(root / name) for name in names] if members is None else shared_files(files, members)
    labels = torch.tensor(scanned["labels"])
    train, val = _split(labels, scanned["train"], config)
    height, width = scanned["height"], scanned["width"]
    form = _Format(scanned["channels"], height, width, config.resize if config.image_size else None, crop_fraction)
    cache = None
    if config.cache == "auto":
        settings = asdict(form) | {"index": scanned.get("index")}
        cache = scan.decoded(files, settings, count=len(labels), length=form.channels * height * width)

    def part(indexes: Tensor) -> FolderPictures:
        chosen = indexes.tolist()
        return FolderPictures([sources[index] for index in chosen], labels[indexes], form, indexes=chosen, cache=cache)

    return ImageData(
        part(train),
        part(val),
        scanned["classes"],
        channels=form.channels,
        height=height,
        width=width,
        in_memory=False,
        identity=files.identity,
        split_hash=split_digest(*([names[index] for index in indexes.tolist()] for indexes in (train, val))),
    )


def _split(labels: Tensor, train: int | None, config: ImageDataConfig) -> tuple[Tensor, Tensor]:
    """Returns the indexes of the pictures to train on, and of those to hold out."""
    if train is None:
        return split_indices(labels, fraction=config.val_fraction, seed=config.split_seed)
    return torch.arange(train), torch.arange(train, len(labels))


def _look_through(root: Path, config: ImageDataConfig, channels: int | None, scan: Scan) -> dict[str, Any]:
    """Returns what the ranks share; `train`: how many files are for training, the first ones. None: all are split."""
    if is_sharded(root):
        return _look_through_shards(root, config, channels, scan)
    folders = _folders(root)
    splits = split_names(folders, root)
    parent = root / splits[0] if splits else root
    classes = _folders(parent) if splits else folders
    if len(classes) < 2:
        raise DataError(f"{parent} has {len(classes)} class folders; at least two are needed")
    files, labels = _files(parent, classes)
    train = len(files) if splits else None
    if splits:
        held_out = root / splits[1]
        unknown = sorted(set(_folders(held_out)) - set(classes))
        if unknown:
            raise DataError(f"{held_out / unknown[0]}: this class is not in {parent}")
        val_files, val_labels = _files(held_out, classes, may_be_absent=True)
        if not val_files:
            raise DataError(f"{root}: there is no picture for validation")
        files, labels = [*files, *val_files], [*labels, *val_labels]
    form = _inspect(files, config.image_size, channels, scan)
    form["notes"] += left_out(folders, root) if splits else []
    listing = scan.listing([file.relative_to(root).as_posix() for file in files], root)
    return {"classes": classes, "labels": labels, "train": train, **form, **listing}


def _look_through_shards(root: Path, config: ImageDataConfig, channels: int | None, scan: Scan) -> dict[str, Any]:
    shards = read_shards(root, scan)
    samples = labelled(shards)
    form = _inspect(samples.files, config.image_size, channels, scan)
    shared = {"names": samples.names, "classes": samples.classes, "labels": samples.labels, "train": samples.train}
    return {**shared, **form, **listing(shards, samples.files, scan)}


def _folders(root: Path) -> list[str]:
    try:
        with os.scandir(root) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir() and not is_hidden(entry.name))
    except OSError as error:
        raise DataError(f"{root} cannot be read: {error.strerror}") from error
    return names


def _files(root: Path, classes: Sequence[str], *, may_be_absent: bool = False) -> tuple[list[Path], list[int]]:
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        folder = root / name
        if may_be_absent and not folder.exists():
            continue
        try:
            paths = sorted(path for path in folder.iterdir() if not is_hidden(path.name))
        except OSError as error:
            raise DataError(f"{folder} cannot be read: {error.strerror}") from error
        if not paths and not may_be_absent:
            raise DataError(f"{folder} is empty")
        files += paths
        labels += [label] * len(paths)
    return files, labels


def _inspect(files: Sequence[PictureFile], image_size: int | None, channels: int | None, scan: Scan) -> dict[str, Any]:
    first = header_of(files[0]).size
    grey = True
    deep: list[PictureFile] = []
    checked = files[:: max(1, len(files) // MAX_CHECKED)]
    for file in scan.each(checked, "reads the headers"):
        header = header_of(file)
        grey = grey and header.grey
        if header.deep:
            deep.append(file)
        if image_size is None and header.size != first:
            raise DataError(_differs(str(file), header.size, first))
    width, height = (image_size, image_size) if image_size else first
    form = {"channels": channels or (1 if grey else 3), "height": height, "width": width}
    return {**form, "notes": expect_bright(deep, scan)}


def _pictures(form: _Format, cache: Decoded | None, files: Sequence[tuple[PictureFile, int]]) -> Tensor:
    pictures = torch.empty(len(files), form.channels, form.height, form.width, dtype=torch.uint8)
    for row, (file, index) in zip(pictures, files, strict=True):
        fill(row, partial(_picture, file, form), index=index, cache=cache)
    return pictures


def _picture(file: PictureFile, form: _Format) -> Tensor:
    wanted = (form.width, form.height)
    if form.resize is not None:
        return decode(
            opened(file), channels=form.channels, size=wanted, resize=form.resize, crop_fraction=form.crop_fraction
        )
    pixels = decode(opened(file), channels=form.channels)
    _, height, width = pixels.shape
    if (width, height) != wanted:
        raise DataError(_differs(str(file), (width, height), wanted))
    return pixels


def _differs(file: str, size: tuple[int, int], wanted: tuple[int, int]) -> str:
    sizes = f"{size[0]}×{size[1]} pixels, the first one {wanted[0]}×{wanted[1]}"
    return f"{file} has {sizes}: set data.image_size"
