"""Reads the headers and the pixels of picture files."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps
import torch
from torch import Tensor

from torchyard.contract.errors import DataError

UNREADABLE = (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError)
"""The exceptions of Pillow for a file that it cannot read as a picture."""

ORIENTATION = 0x0112
ON_ITS_SIDE = {5, 6, 7, 8}


class Header(NamedTuple):
    """The size and the colours of a picture file."""

    size: tuple[int, int]
    """Width and height of the upright picture, after its EXIF orientation is applied."""
    grey: bool


def header(file: str | Path) -> Header:
    """Reads a picture's header, without decoding its pixels. Raises DataError."""
    try:
        with Image.open(file) as image:
            turned = image.format == "JPEG" and image.getexif().get(ORIENTATION) in ON_ITS_SIDE
            size = (image.height, image.width) if turned else image.size
            return Header(size, image.mode in {"1", "L", "I", "F"} or image.mode.startswith("I;16"))
    except UNREADABLE as error:
        raise DataError(f"{file} cannot be read as a picture: {error}") from error


def decode(file: str | Path, *, channels: int, size: tuple[int, int] | None = None) -> Tensor:
    """Returns the upright pixels as uint8 (channels, height, width), with 1 or 3 channels. Raises DataError.

    `size`: the wanted width and height; None keeps the picture's size.
    """
    image = load(file, channels=channels)
    if size is None or image.size == size:
        return pixels(image)
    return pixels(image.resize(size, Image.Resampling.BILINEAR))


def load(file: str | Path, *, channels: int) -> Image.Image:
    """Returns the upright picture with 8 bits a value and 1 or 3 channels. Raises DataError."""
    try:
        with Image.open(file) as opened:
            return _eight_bits(ImageOps.exif_transpose(opened)).convert("L" if channels == 1 else "RGB")
    except UNREADABLE as error:
        raise DataError(f"{file} cannot be read as a picture: {error}") from error


def pixels(image: Image.Image) -> Tensor:
    """Returns the pixels as uint8 (channels, height, width)."""
    values = np.asarray(image).reshape(image.height, image.width, -1)
    return torch.from_numpy(values.transpose(2, 0, 1).copy())


def _eight_bits(image: Image.Image) -> Image.Image:
    if "transparency" in image.info:
        return image.convert("RGBA")  # Pillow warns if a palette with transparency is converted to RGB directly
    if image.mode != "I" and not image.mode.startswith("I;16"):
        return image
    return Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8))
