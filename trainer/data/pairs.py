"""Pictures and their masks in two folders, decoded when a batch needs them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from PIL import Image
import torch
from torch import Tensor

from torchyard.contract.errors import DataError
from torchyard.contract.recipes import SegmentationDataConfig
from torchyard.models.decoding import header, load, pixels
from trainer.data.digests import split_digest
from trainer.data.identity import Identity, identity_of_files
from trainer.data.images import MAX_MEASURED, split_indices
from trainer.data.loading import load_batches, to_device
from trainer.data.masks import IGNORED, read_mask

MAX_CHECKED = 5_000
"""At most this many pairs of headers are read before training, evenly spaced. Others are checked when decoded."""


@dataclass(frozen=True)
class Pair:
    """A picture and its mask."""

    name: str
    """The stem of both files, with `train/` or `val/` before it if the source has its own splits."""
    picture: Path
    mask: Path


class Pairs:
    """One split of pairs."""

    def __init__(self, pairs: Sequence[Pair], config: SegmentationDataConfig) -> None:
        self.pairs = pairs
        self._config = config

    def __len__(self) -> int:
        return len(self.pairs)

    def batches(self, plan: Sequence[Tensor], *, device: torch.device, workers: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields pictures and masks of each batch of indices in `plan`, on `device`. Raises DataError.

        Both are uint8: pictures (samples, 3, size, size) of 0…255, masks (samples, 1, size, size) of classes (0 and 1
        without `data.classes`) and IGNORED.
        """
        read = partial(_pictures_and_masks, self.pairs, self._config)
        for pictures, masks in load_batches(read, plan, workers=workers, device=device):
            yield to_device(pictures, device), to_device(masks, device)

    def count_classes(self, *, workers: int) -> list[int]:
        """Returns the pixels of each class in at most MAX_MEASURED masks, evenly spaced. Raises DataError."""
        count = min(len(self), MAX_MEASURED)
        plan = list((torch.arange(count) * len(self) // count).split(32))
        counts = load_batches(
            partial(_class_counts, self.pairs, self._config), plan, workers=workers, device=torch.device("cpu")
        )
        return torch.stack(list(counts)).sum(0).tolist()


@dataclass(frozen=True)
class PairData:
    """A source with its two splits."""

    train: Pairs
    val: Pairs
    identity: Identity
    split_hash: str
    """The digest of the pairs' names, each with its split."""


def load_pairs(root: Path, config: SegmentationDataConfig) -> PairData:
    """Loads `images/` and `masks/` and splits them, or both in each of `train/` and `val/`. Raises DataError.

    A picture and its mask have the same stem, and the same size after their EXIF orientations are applied.
    """
    if (root / "train" / "images").is_dir() and (root / "val" / "images").is_dir():
        train, val = (_pairs(root / split, prefix=f"{split}/") for split in ("train", "val"))
    else:
        pairs = _pairs(root)
        if len(pairs) < 2:
            raise DataError(f"{root} has one picture; at least two are needed, one of them for validation")
        kept, held_out = split_indices(torch.zeros(len(pairs)), fraction=config.val_fraction, seed=config.split_seed)
        train, val = ([pairs[index] for index in part.tolist()] for part in (kept, held_out))
    _inspect([*train, *val], config)
    files = [file for pair in (*train, *val) for file in (pair.picture, pair.mask)]
    return PairData(
        Pairs(train, config),
        Pairs(val, config),
        identity=identity_of_files(root, files),
        split_hash=split_digest([pair.name for pair in train], [pair.name for pair in val]),
    )


def _pairs(root: Path, *, prefix: str = "") -> list[Pair]:
    """Returns the pairs of `images/` and `masks/` below `root`, sorted by name."""
    pictures, masks = _by_stem(root / "images"), _by_stem(root / "masks")
    for own, other, folder in ((pictures, masks, "masks"), (masks, pictures, "images")):
        alone = sorted(own.keys() - other.keys())
        if alone:
            more = f" ({len(alone)} such files)" if len(alone) > 1 else ""
            raise DataError(f"{own[alone[0]]} has no partner {alone[0]}.* in {root / folder}{more}")
    return [Pair(prefix + stem, pictures[stem], masks[stem]) for stem in sorted(pictures)]


def _by_stem(folder: Path) -> dict[str, Path]:
    try:
        files = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise DataError(
            f"{folder} cannot be read: {error.strerror}; a source has images/ and masks/, or train/ and val/ with both"
        ) from error
    if not files:
        raise DataError(f"{folder} is empty")
    found: dict[str, Path] = {}
    for file in files:
        if file.stem in found:
            raise DataError(f"{file} has the same stem as {found[file.stem].name}: which one belongs to its partner?")
        found[file.stem] = file
    return found


def _inspect(pairs: Sequence[Pair], config: SegmentationDataConfig) -> None:
    for pair in pairs[:: max(1, len(pairs) // MAX_CHECKED)]:
        if header(pair.picture).size != header(pair.mask).size:
            # Raises, unless an orientation that is not in the header makes the sizes equal.
            _picture_and_mask(pair, config)


def _pictures_and_masks(
    pairs: Sequence[Pair], config: SegmentationDataConfig, indices: Tensor
) -> tuple[Tensor, Tensor]:
    pictures, masks = zip(*(_picture_and_mask(pairs[index], config) for index in indices.tolist()), strict=True)
    return torch.stack(pictures), torch.stack(masks)


def _class_counts(pairs: Sequence[Pair], config: SegmentationDataConfig, indices: Tensor) -> Tensor:
    classes = 2 if config.classes is None else len(config.classes)
    masks = (_resized_mask(read_mask(pairs[index].mask, config), config.image_size) for index in indices.tolist())
    return torch.stack([mask.flatten().bincount(minlength=IGNORED + 1)[:classes] for mask in masks]).sum(0)


def _picture_and_mask(pair: Pair, config: SegmentationDataConfig) -> tuple[Tensor, Tensor]:
    size = config.image_size
    picture, mask = load(pair.picture, channels=3), read_mask(pair.mask, config)
    if picture.size != mask.size:
        sizes = [f"{width}×{height}" for width, height in (picture.size, mask.size)]
        raise DataError(f"{pair.picture} has {sizes[0]} pixels and its mask {pair.mask} has {sizes[1]}")
    if picture.size != (size, size):
        picture = picture.resize((size, size), Image.Resampling.BILINEAR)
    return pixels(picture), _resized_mask(mask, size)


def _resized_mask(mask: Image.Image, size: int) -> Tensor:
    """Resizes by the nearest pixel, which keeps classes, and their shares on average.

    Averaging would remove every crack that is thinner than half a pixel of the smaller mask.
    """
    return pixels(mask if mask.size == (size, size) else mask.resize((size, size), Image.Resampling.NEAREST))
