"""Reads the headers and the pixels of picture files."""

from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

import numpy as np
from PIL import Image, ImageOps
import torch
from torch import Tensor

from torchyard.contract.errors import DataError
from torchyard.models.depth import eight_bits, is_deep, largest

UNREADABLE = (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError)
"""The exceptions of Pillow for a file that it cannot read as a picture."""

ORIENTATION = 0x0112
ON_ITS_SIDE = {5, 6, 7, 8}
JPEG = {"JPEG", "MPO"}
DRAFT = 2
"""A JPEG is decoded at a fraction of its size if that is still at least this many times the wanted size."""

File = str | Path | BinaryIO
Resize = Literal["crop", "squash"]
"""How a picture becomes as wide and high as wanted: by cutting off what is too long, or by changing its aspect."""


class Header(NamedTuple):
    """The size and the colours of a picture file."""

    size: tuple[int, int]
    """Width and height of the upright picture, after its EXIF orientation is applied."""
    grey: bool
    deep: bool = False
    """Whether it has more than 8 bits a value: see `torchyard.models.depth`."""


def header(file: File) -> Header:
    """Reads a picture's header, without decoding its pixels. Raises DataError."""
    try:
        with Image.open(file) as image:
            size = (image.height, image.width) if _on_its_side(image) else image.size
            return Header(size, image.mode in {"1", "L"} or is_deep(image.mode), is_deep(image.mode))
    except UNREADABLE as error:
        raise unreadable(file, error) from error


def decode(
    file: File,
    *,
    channels: int,
    size: tuple[int, int] | None = None,
    resize: Resize = "squash",
    crop_fraction: float = 1.0,
) -> Tensor:
    """Returns the upright pixels as uint8 (channels, height, width), with 1 or 3 channels. Raises DataError.

    `size`: the wanted width and height; None keeps the picture's size. `resize`, `crop_fraction`: see `fit`.
    """
    if size is None:
        return pixels(load(file, channels=channels))
    # A JPEG is decoded at the same fraction of its width and height: that of the shorter one will do.
    image = load(file, channels=channels, wanted=_enlarged(size, crop_fraction) if resize == "crop" else size)
    return pixels(fit(image, size, resize=resize, crop_fraction=crop_fraction))


def load(file: File, *, channels: int, wanted: tuple[int, int] | None = None) -> Image.Image:
    """Returns the upright picture with 8 bits a value and 1 or 3 channels. Raises DataError.

    `wanted`: the least width and height that the caller needs. A much larger JPEG is then returned at a half, a quarter
    or an eighth of its size, with a mean difference of 0.2 of 255 once it is resized. Not for masks.
    """
    try:
        with Image.open(file) as opened:
            if wanted is not None:
                _draft(opened, wanted)
            ImageOps.exif_transpose(opened, in_place=True)  # in place, as a copy of all pixels takes time
            return converted(opened, channels=channels, kind=opened.format)
    except UNREADABLE as error:
        raise unreadable(file, error) from error


def largest_value(file: File) -> int | None:
    """Returns the largest value of a picture of 16 bits. None: it is another one. Raises DataError."""
    try:
        with Image.open(file) as opened:
            return largest(opened, opened.format)
    except UNREADABLE as error:
        raise unreadable(file, error) from error


def unreadable(file: File, error: BaseException) -> DataError:
    """Returns the error of a file whose reading ended with one of UNREADABLE."""
    why = error.strerror if isinstance(error, OSError) and error.strerror else error
    return DataError(f"{_name(file)} cannot be read as a picture: {why}")


def converted(image: Image.Image, *, channels: int, kind: str | None) -> Image.Image:
    """Returns the picture with 8 bits a value and 1 or 3 channels. `kind`: the format of its file, if it was one.

    Raises ValueError for values of which nobody knows which one is white.
    """
    mode = "L" if channels == 1 else "RGB"
    image = _eight_bits(image, kind)
    return image if image.mode == mode else image.convert(mode)


def fit(
    image: Image.Image, size: tuple[int, int], *, resize: Resize = "squash", crop_fraction: float = 1.0
) -> Image.Image:
    """Returns the picture with the wanted width and height.

    `squash` changes its aspect. `crop` keeps it: the picture is resized until it just covers the wanted size divided by
    `crop_fraction`, and its centre is cut out, as torchvision's `Resize` and `CenterCrop` do.
    """
    return image.resize(size, Image.Resampling.BILINEAR, box=fit_box(image.size, size, resize, crop_fraction))


def fit_box(
    own: tuple[int, int], size: tuple[int, int], resize: Resize, crop_fraction: float = 1.0
) -> tuple[float, float, float, float]:
    """Returns the part of a picture of the size `own` that `fit` keeps: left, top, right and bottom."""
    if resize == "squash":
        return (0.0, 0.0, float(own[0]), float(own[1]))
    whole = covering(own, size, crop_fraction)
    # Where torchvision cuts, in whole pixels of the resized picture, which is never made: it may be huge.
    starts = [round((full - wanted) / 2) for full, wanted in zip(whole, size, strict=True)]
    left, top = (start * side / full for start, side, full in zip(starts, own, whole, strict=True))
    right, bottom = (
        min((start + wanted) * side / full, side)
        for start, wanted, side, full in zip(starts, size, own, whole, strict=True)
    )
    return (left, top, right, bottom)


def covering(own: tuple[int, int], size: tuple[int, int], crop_fraction: float = 1.0) -> tuple[int, int]:
    """Returns the width and height that a picture of the size `own` gets before `crop` cuts out its centre."""
    (width, height), (wide, high) = own, _enlarged(size, crop_fraction)
    if width * high < height * wide:
        return (wide, max(high, wide * height // width))
    return (max(wide, high * width // height), high)


def pixels(image: Image.Image) -> Tensor:
    """Returns the pixels as uint8 (channels, height, width)."""
    values = np.asarray(image).reshape(image.height, image.width, -1)
    return torch.from_numpy(values.transpose(2, 0, 1).copy())


def _on_its_side(image: Image.Image) -> bool:
    return image.format in JPEG and image.getexif().get(ORIENTATION) in ON_ITS_SIDE


def _draft(image: Image.Image, wanted: tuple[int, int]) -> None:
    if image.format not in JPEG:
        return
    width, height = wanted[::-1] if _on_its_side(image) else wanted
    image.draft(None, (DRAFT * width, DRAFT * height))


def _enlarged(size: tuple[int, int], crop_fraction: float) -> tuple[int, int]:
    width, height = size
    return (max(width, round(width / crop_fraction)), max(height, round(height / crop_fraction)))


def _eight_bits(image: Image.Image, kind: str | None) -> Image.Image:
    if is_deep(image.mode):
        return eight_bits(image, kind)
    # By way of RGBA, as Pillow warns if a palette with transparency is converted to RGB directly.
    return image.convert("RGBA") if "transparency" in image.info else image


def _name(file: File) -> str:
    return str(file) if isinstance(file, str | Path) else str(getattr(file, "name", "the file"))
