"""Reads the pictures that models predict: files, images of Pillow, and arrays."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from PIL import Image, ImageOps
import torch
from torch import Tensor

from torchyard.contract.bundles.shards import is_hidden
from torchyard.contract.errors import DataError
from torchyard.models import arrays
from torchyard.models.decoding import UNREADABLE, Resize, converted, fit, header, largest_value, load, pixels
from torchyard.models.depth import SAVE_8_BITS, largest, looks_black

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
"""The files in a folder that are pictures."""


@dataclass(frozen=True)
class Form:
    """How a picture becomes an input of a model."""

    channels: int
    height: int
    width: int
    resize: Resize
    crop_fraction: float


@dataclass(frozen=True)
class Picture:
    """A picture in the form of a model's input."""

    pixels: Tensor
    """uint8, or floats of 0…1: (channels, height, width)."""
    size: tuple[int, int]
    """Its own width and height, upright."""


def listed(source: Any) -> tuple[list[Any], bool]:
    """Returns the single pictures in `source`, and whether it is a list, a folder or an array of several pictures.

    Raises DataError.
    """
    if isinstance(source, (list, tuple)):
        sources = cast("list[Any]", source)
        return [single for item in sources for single in listed(item)[0]], True
    if isinstance(source, np.ndarray | Tensor) and source.ndim == 4:
        return list(source), True
    if isinstance(source, str | Path):
        return (_in_folder(Path(source)), True) if Path(source).is_dir() else ([Path(source)], False)
    return [source], False


def read(source: Any, form: Form) -> Picture:
    """Returns a single picture as the model's input. Files go the way of files in training, arrays that of arrays.

    Raises DataError.
    """
    size = (form.width, form.height)
    if isinstance(source, Path | str):
        own_header = header(source)
        _expect_bright(str(source), largest_value(source) if own_header.deep else None)
        image = load(source, channels=form.channels, wanted=_wanted(form))
        own = _own_size(own_header.size, image)
    elif isinstance(source, Image.Image):
        _expect_bright("the image", largest(source, source.format))
        image = _opened(source, channels=form.channels)
        own = image.size
    else:
        array = arrays.picture(source, channels=form.channels)
        whole = arrays.fitted(array[None], size, resize=form.resize, crop_fraction=form.crop_fraction)[0]
        return Picture(whole, (array.shape[2], array.shape[1]))
    fitted = pixels(fit(image, size, resize=form.resize, crop_fraction=form.crop_fraction))
    return Picture(fitted, own)


def stacked(pictures: list[Tensor]) -> Tensor:
    """Returns one batch. Bytes become floats of 0…1 if others are floats."""
    if len({picture.dtype for picture in pictures}) > 1:
        pictures = [item / 255 if item.dtype == torch.uint8 else item for item in pictures]
    return torch.stack(pictures)


def coloured(source: Any) -> Image.Image:
    """Returns a picture at its own size, in colours. Raises DataError."""
    if isinstance(source, Path | str):
        return load(source, channels=3)
    if isinstance(source, Image.Image):
        return _opened(source, channels=3)
    array = arrays.picture(source, channels=3)
    whole = array if array.dtype == torch.uint8 else (array.clamp(0, 1) * 255).round().byte()
    return Image.fromarray(whole.permute(1, 2, 0).numpy())


def name(source: Any) -> str | None:
    """Returns the path of a file; None for a picture that is no file."""
    return str(source) if isinstance(source, Path | str) else None


def _in_folder(folder: Path) -> list[Path]:
    try:
        inside = sorted(folder.rglob("*"))
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror}") from error
    found = [
        path
        for path in inside
        if path.suffix.lower() in SUFFIXES
        and path.is_file()
        and not any(map(is_hidden, path.relative_to(folder).parts))
    ]
    if not found:
        raise DataError(f"{folder} has no picture")
    return found


def _wanted(form: Form) -> tuple[int, int]:
    scale = form.crop_fraction if form.resize == "crop" else 1.0
    return (round(form.width / scale), round(form.height / scale))


def _expect_bright(what: str, value: int | None) -> None:
    """Raises DataError for values of 8 bits in a picture of 16: training refuses them, too."""
    if value is not None and looks_black(value):
        raise DataError(f"{what} has 16 bits a value, and the largest one is {value}, so it is black: {SAVE_8_BITS}")


def _own_size(size: tuple[int, int], image: Image.Image) -> tuple[int, int]:
    """Returns the size of an upright file. `image` is its picture, of which a large JPEG was decoded smaller."""
    width, height = size
    if (width - height) * (image.width - image.height) < 0:
        return (height, width)  # the header of a PNG does not say that it lies on its side
    return (width, height)


def _opened(image: Image.Image, *, channels: int) -> Image.Image:
    try:
        return converted(ImageOps.exif_transpose(image), channels=channels, kind=image.format)
    except UNREADABLE as error:
        raise DataError(f"the image cannot be read: {error}") from error
