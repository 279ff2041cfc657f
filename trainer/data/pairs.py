"""Pictures and their masks in two folders, decoded when a batch needs them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps
import torch
from torch import Tensor

from torchyard.contract.errors import DataError
from torchyard.contract.recipes import SegmentationDataConfig
from torchyard.models.decoding import UNREADABLE, header, load, pixels
from trainer.data.digests import split_digest
from trainer.data.identity import Identity, identity_of_files
from trainer.data.images import MAX_MEASURED, split_indices
from trainer.data.loading import load_batches, to_device

MAX_CHECKED = 5_000
"""At most this many pairs of headers are read before training, evenly spaced. Others are checked when decoded."""


@dataclass(frozen=True)
class Pair:
    """A picture and its mask."""

    name: str
    """The stem of both files, with `train/` or `val/` before it if the source has its own splits."""
    picture: Path
    mask: Path


@dataclass(frozen=True)
class Form:
    """The form of every decoded pair."""

    size: int
    """Pixels a side."""
    threshold: float
    """A mask value above this share of full scale is positive."""


class Pairs:
    """One split of pairs."""

    def __init__(self, pairs: Sequence[Pair], form: Form) -> None:
        self.pairs = pairs
        self._form = form

    def __len__(self) -> int:
        return len(self.pairs)

    def batches(self, plan: Sequence[Tensor], *, device: torch.device, workers: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields pictures and masks of each batch of indices in `plan`, on `device`. Raises DataError.

        Both are uint8: pictures (samples, 3, size, size) of 0…255, masks (samples, 1, size, size) of 0 and 1.
        """
        read = partial(_pictures_and_masks, self.pairs, self._form)
        for pictures, masks in load_batches(read, plan, workers=workers, device=device):
            yield to_device(pictures, device), to_device(masks, device)

    def positive_share(self, *, workers: int) -> float:
        """Returns the share of positive pixels in at most MAX_MEASURED masks, evenly spaced. Raises DataError."""
        count = min(len(self), MAX_MEASURED)
        plan = list((torch.arange(count) * len(self) // count).split(32))
        shares = load_batches(
            partial(_positive_shares, self.pairs, self._form), plan, workers=workers, device=torch.device("cpu")
        )
        return torch.cat(list(shares)).mean().item()


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
    form = Form(config.image_size, config.mask_threshold)
    _inspect([*train, *val], form)
    files = [file for pair in (*train, *val) for file in (pair.picture, pair.mask)]
    return PairData(
        Pairs(train, form),
        Pairs(val, form),
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


def _inspect(pairs: Sequence[Pair], form: Form) -> None:
    for pair in pairs[:: max(1, len(pairs) // MAX_CHECKED)]:
        if header(pair.picture).size != header(pair.mask).size:
            # Raises, unless an orientation that is not in the header makes the sizes equal.
            _picture_and_mask(pair, form)


def _pictures_and_masks(pairs: Sequence[Pair], form: Form, indices: Tensor) -> tuple[Tensor, Tensor]:
    pictures, masks = zip(*(_picture_and_mask(pairs[index], form) for index in indices.tolist()), strict=True)
    return torch.stack(pictures), torch.stack(masks)


def _positive_shares(pairs: Sequence[Pair], form: Form, indices: Tensor) -> Tensor:
    masks = (_resized_mask(_mask(pairs[index].mask, form.threshold), form.size) for index in indices.tolist())
    return torch.stack([mask.double().mean() for mask in masks])


def _picture_and_mask(pair: Pair, form: Form) -> tuple[Tensor, Tensor]:
    picture, mask = load(pair.picture, channels=3), _mask(pair.mask, form.threshold)
    if picture.size != mask.size:
        sizes = [f"{width}×{height}" for width, height in (picture.size, mask.size)]
        raise DataError(f"{pair.picture} has {sizes[0]} pixels and its mask {pair.mask} has {sizes[1]}")
    if picture.size != (form.size, form.size):
        picture = picture.resize((form.size, form.size), Image.Resampling.BILINEAR)
    return pixels(picture), _resized_mask(mask, form.size)


def _mask(file: Path, threshold: float) -> Image.Image:
    """Returns the upright mask of 0 and 1 at the file's size. The brightest channel of a colour counts."""
    try:
        with Image.open(file) as opened:
            image = ImageOps.exif_transpose(opened)
            wide = image.mode == "I" or image.mode.startswith("I;16")
            values = np.asarray(image) if wide else np.asarray(_colours(image)).max(axis=2)
    except UNREADABLE as error:
        raise DataError(f"{file} cannot be read as a picture: {error}") from error
    return Image.fromarray((values > threshold * (65535 if wide else 255)).astype(np.uint8))


def _colours(image: Image.Image) -> Image.Image:
    # By way of RGBA, as Pillow warns about a palette with transparency otherwise.
    return (image.convert("RGBA") if "transparency" in image.info else image).convert("RGB")


def _resized_mask(mask: Image.Image, size: int) -> Tensor:
    """Resizes by the nearest pixel, which keeps the share of positive pixels on average.

    Averaging would remove every crack that is thinner than half a pixel of the smaller mask.
    """
    return pixels(mask if mask.size == (size, size) else mask.resize((size, size), Image.Resampling.NEAREST))
