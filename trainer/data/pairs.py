"""Pictures and their masks in two folders or in shards, decoded when a batch needs them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image
import torch
from torch import Tensor

from torchyard.contract.bundles.shards import is_hidden
from torchyard.contract.errors import DataError
from torchyard.contract.recipes import SegmentationDataConfig
from torchyard.models.decoding import fit_box, header, load, pixels
from trainer.data.brightness import expect_bright
from trainer.data.decoded import Decoded, fill
from trainer.data.digests import split_digest
from trainer.data.identity import Identity
from trainer.data.images import MAX_MEASURED, split_indices
from trainer.data.loading import load_batches, to_device
from trainer.data.masks import IGNORED, read_mask
from trainer.data.picturefiles import PictureFile, header_of, opened
from trainer.data.scanning import ALONE, Files, Scan
from trainer.data.shardnames import paired
from trainer.data.shards import is_sharded, listing, read_shards, shared_files
from trainer.data.splits import left_out, split_names

MAX_CHECKED = 5_000
"""At most this many pairs of headers are read before training, evenly spaced. Others are checked when decoded."""


PICTURE = 3
"""Channels of the picture: the mask follows them."""

_NOT_OF_PIXELS = {"source", "val_fraction", "split_seed", "normalize", "augment", "workers", "cache"}


@dataclass(frozen=True)
class Pair:
    """A picture and its mask."""

    name: str
    """The stem of both files, with `train/` or `val/` before it if the source has its own splits."""
    picture: PictureFile
    mask: PictureFile
    index: int
    """Of the pair among all of the source, and in the cache."""


class Pairs:
    """One split of pairs."""

    def __init__(self, pairs: Sequence[Pair], config: SegmentationDataConfig, *, cache: Decoded | None = None) -> None:
        self.pairs = pairs
        self._config = config
        self._cache = cache

    def __len__(self) -> int:
        return len(self.pairs)

    def batches(self, plan: Sequence[Tensor], *, device: torch.device, workers: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields pictures and masks of each batch of indices in `plan`, on `device`. Raises DataError.

        Both are uint8: pictures (samples, 3, size, size) of 0…255, masks (samples, 1, size, size) of classes (0 and 1
        without `data.classes`) and IGNORED.
        """
        read = partial(_pictures_and_masks, self._config, self._cache)
        for both in load_batches(read, self._chosen(plan), workers=workers, device=device):
            moved = to_device(both, device)
            yield moved[:, :PICTURE], moved[:, PICTURE:]

    def count_classes(self, *, workers: int) -> list[int]:
        """Returns the pixels of each class in at most MAX_MEASURED masks, evenly spaced. Raises DataError."""
        count = min(len(self), MAX_MEASURED)
        plan = (torch.arange(count) * len(self) // count).split(32)
        read = partial(_class_counts, self._config)
        counts = load_batches(read, self._chosen(plan), workers=workers, device=torch.device("cpu"))
        return torch.stack(list(counts)).sum(0).tolist()

    def are_of_one_class(self) -> bool:
        """Returns whether no mask that `count_classes` counts has a second class. Raises DataError.

        It ends with the first second class.
        """
        count = min(len(self), MAX_MEASURED)
        total = torch.zeros(1)
        for single in (torch.arange(count) * len(self) // count).tolist():
            total = total + _class_counts(self._config, [self.pairs[single]])
            if (total > 0).sum() > 1:
                return False
        return True

    def _chosen(self, plan: Sequence[Tensor]) -> Iterator[list[Pair]]:
        return ([self.pairs[index] for index in batch.tolist()] for batch in plan)


@dataclass(frozen=True)
class PairData:
    """A source with its two splits."""

    train: Pairs
    val: Pairs
    identity: Identity
    split_hash: str
    """The digest of the pairs' names, each with its split."""


def load_pairs(root: Path, config: SegmentationDataConfig, *, scan: Scan = ALONE) -> PairData:
    """Loads `images/` and `masks/` and splits them, or both in `train/` and `val/`, or shards. Raises DataError.

    A picture and its mask have the same stem, and the same size after their EXIF orientations are applied. A collective
    of the ranks that look through the source.
    """
    scanned = scan.share(partial(_look_through, root, config, scan))
    files = Files(root, scanned["files"], digest=scanned["digest"], stamp=scanned["stamp"])
    scan.compare(files)
    scan.note(scanned["notes"])
    members = scanned.get("members")
    sources = [root / name for name in files.names] if members is None else shared_files(files, members)
    named = zip(scanned["names"], sources[::2], sources[1::2], strict=True)
    pairs = [Pair(name, picture, mask, index) for index, (name, picture, mask) in enumerate(named)]
    if scanned["train"] is None:
        kept, held_out = split_indices(torch.zeros(len(pairs)), fraction=config.val_fraction, seed=config.split_seed)
        train, val = ([pairs[index] for index in part.tolist()] for part in (kept, held_out))
    else:
        train, val = pairs[: scanned["train"]], pairs[scanned["train"] :]
    cache = None
    if config.cache == "auto":
        form = config.model_dump(mode="json", exclude=_NOT_OF_PIXELS)
        settings = {"pairs": form, "index": scanned.get("index")}
        cache = scan.decoded(files, settings, count=len(pairs), length=(PICTURE + 1) * config.image_size**2)
    return PairData(
        Pairs(train, config, cache=cache),
        Pairs(val, config, cache=cache),
        identity=files.identity,
        split_hash=split_digest([pair.name for pair in train], [pair.name for pair in val]),
    )


def _look_through(root: Path, config: SegmentationDataConfig, scan: Scan) -> dict[str, Any]:
    """Returns what the ranks share; `train`: how many pairs are for training, the first ones. None: all are split."""
    if is_sharded(root):
        return _look_through_shards(root, config, scan)
    train = None
    folders = _folders(root)
    splits = split_names(folders, root)
    if splits:
        pairs = _pairs(root / splits[0], prefix="train/")
        train = len(pairs)
        pairs += _pairs(root / splits[1], prefix="val/")
    else:
        pairs = _pairs(root)
        _expect_two(root, pairs)
    inspected = _inspect(pairs, config, scan)
    inspected["notes"] += left_out(folders, root) if splits else []
    files = [Path(str(file)).relative_to(root).as_posix() for pair in pairs for file in (pair.picture, pair.mask)]
    return {"names": [pair.name for pair in pairs], "train": train, **inspected, **scan.listing(files, root)}


def _look_through_shards(root: Path, config: SegmentationDataConfig, scan: Scan) -> dict[str, Any]:
    shards = read_shards(root, scan)
    samples = paired(shards)
    _expect_two(root, samples.files)
    pairs = [Pair(name, *both, 0) for name, both in zip(samples.names, samples.files, strict=True)]
    inspected = _inspect(pairs, config, scan)
    files = [file for both in samples.files for file in both]
    return {"names": samples.names, "train": samples.train, **inspected, **listing(shards, files, scan)}


def _expect_two(root: Path, pairs: Sequence[Any]) -> None:
    if len(pairs) < 2:
        raise DataError(f"{root} has one picture; at least two are needed, one of them for validation")


def _pairs(root: Path, *, prefix: str = "") -> list[Pair]:
    """Returns the pairs of `images/` and `masks/` below `root`, sorted by name."""
    pictures, masks = _by_stem(root / "images"), _by_stem(root / "masks")
    for own, other, folder in ((pictures, masks, "masks"), (masks, pictures, "images")):
        alone = sorted(own.keys() - other.keys())
        if alone:
            more = f" ({len(alone)} such files)" if len(alone) > 1 else ""
            raise DataError(f"{own[alone[0]]} has no partner {alone[0]}.* in {root / folder}{more}")
    return [Pair(prefix + stem, pictures[stem], masks[stem], 0) for stem in sorted(pictures)]


def _folders(root: Path) -> list[str]:
    """Returns the names of the folders that may be parts of a split."""
    return [path.name for path in _listed(root) if (path / "images").is_dir()]


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not is_hidden(path.name))
    except OSError as error:
        raise DataError(
            f"{folder} cannot be read: {error.strerror}; a source has images/ and masks/, or train/ and val/ with both"
        ) from error


def _by_stem(folder: Path) -> dict[str, Path]:
    files = _listed(folder)
    if not files:
        raise DataError(f"{folder} is empty")
    by_stem: dict[str, Path] = {}
    for file in files:
        if file.stem in by_stem:
            raise DataError(f"{file} has the same stem as {by_stem[file.stem].name}: which one belongs to its partner?")
        by_stem[file.stem] = file
    return by_stem


def _inspect(pairs: Sequence[Pair], config: SegmentationDataConfig, scan: Scan) -> dict[str, Any]:
    deep: list[PictureFile] = []
    for pair in scan.each(pairs[:: max(1, len(pairs) // MAX_CHECKED)], "reads the headers"):
        header = header_of(pair.picture)
        if header.deep:
            deep.append(pair.picture)
        if header.size != header_of(pair.mask).size:
            # Raises, unless an orientation that is not in the header makes the sizes equal.
            _picture_and_mask(pair, config)
    return {"notes": expect_bright(deep, scan)}


def _pictures_and_masks(config: SegmentationDataConfig, cache: Decoded | None, pairs: Sequence[Pair]) -> Tensor:
    side = config.image_size
    both = torch.empty(len(pairs), PICTURE + 1, side, side, dtype=torch.uint8)
    for row, pair in zip(both, pairs, strict=True):
        fill(row, partial(_picture_and_mask, pair, config), index=pair.index, cache=cache)
    return both


def _class_counts(config: SegmentationDataConfig, pairs: Sequence[Pair]) -> Tensor:
    classes = 2 if config.classes is None else len(config.classes)
    masks = (pixels(_fitted_mask(read_mask(opened(pair.mask), config), config)) for pair in pairs)
    return torch.stack([mask.flatten().bincount(minlength=IGNORED + 1)[:classes] for mask in masks]).sum(0)


def _picture_and_mask(pair: Pair, config: SegmentationDataConfig) -> Tensor:
    size = (config.image_size, config.image_size)
    mask = read_mask(opened(pair.mask), config)
    # A picture that is decoded small no longer has the size of its mask.
    file = opened(pair.picture)
    small = header(file).size == mask.size
    picture = load(file, channels=PICTURE, wanted=size if small else None)
    if not small and picture.size != mask.size:
        sizes = [f"{width}×{height}" for width, height in (picture.size, mask.size)]
        raise DataError(f"{pair.picture} has {sizes[0]} pixels and its mask {pair.mask} has {sizes[1]}")
    left, top, right, bottom = fit_box(mask.size, size, config.resize)
    across, down = picture.width / mask.width, picture.height / mask.height
    box = (left * across, top * down, min(right * across, picture.width), min(bottom * down, picture.height))
    fitted = picture.resize(size, Image.Resampling.BILINEAR, box=box)
    return torch.cat([pixels(fitted), pixels(_fitted_mask(mask, config))])


def _fitted_mask(mask: Image.Image, config: SegmentationDataConfig) -> Image.Image:
    """Resizes by the nearest pixel, which keeps classes, and their shares on average.

    Averaging would remove every crack that is thinner than half a pixel of the smaller mask.
    """
    size = (config.image_size, config.image_size)
    return mask.resize(size, Image.Resampling.NEAREST, box=fit_box(mask.size, size, config.resize))
