"""Reads masks: which class each pixel has."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from torchyard.contract.errors import DataError
from torchyard.contract.recipes import SegmentationDataConfig
from torchyard.models.decoding import UNREADABLE, File, unreadable

IGNORED = 255
"""The value of a pixel that counts neither in the loss nor in a metric."""

_GREY = {"1", "L", "P", "I", "F"}
"""Modes of one channel. The value of `P`, a picture with a palette, is the index in the palette."""


def read_mask(file: File, config: SegmentationDataConfig) -> Image.Image:
    """Returns the upright mask at the file's size, with 8 bits a pixel: its class, or IGNORED. Raises DataError.

    Without `data.classes`, 1 is above the threshold and 0 is not; the brightest channel of a colour counts.
    """
    try:
        with Image.open(file) as opened:
            image = ImageOps.exif_transpose(opened)
            values = _above(image, config.mask_threshold) if config.classes is None else _classes(image, config)
    except UNREADABLE as error:
        raise unreadable(file, error) from error
    except _Unknown as error:
        raise DataError(f"{file}: {error}") from None
    return Image.fromarray(values)


class _Unknown(Exception):
    """A pixel has a value that is no class."""


def _above(image: Image.Image, threshold: float) -> NDArray[np.uint8]:
    wide = image.mode == "I" or image.mode.startswith("I;16")
    values = np.asarray(image) if wide else np.asarray(_colours(image)).max(axis=2)
    return (values > threshold * (65535 if wide else 255)).astype(np.uint8)


def _classes(image: Image.Image, config: SegmentationDataConfig) -> NDArray[np.uint8]:
    assert config.classes is not None
    count = len(config.classes)
    if image.mode == "LA":
        image = image.getchannel("L")
    if image.mode in _GREY or image.mode.startswith("I;16"):
        values, known = np.asarray(image), {*range(count), config.ignore_index}
    elif config.palette is None:
        raise _Unknown("the mask is in colours: data.palette says which colour is which class")
    else:
        values, known = _places(image, config.palette), set(range(count))
    present = np.unique(values)
    unknown = [value for value in present.tolist() if value not in known]
    if unknown:
        raise _Unknown(
            f"the mask has the value {unknown[0]:g}; data.classes are 0 to {count - 1}, and {config.ignore_index} "
            "(data.ignore_index) is ignored"
        )
    return np.where(values == config.ignore_index, IGNORED, values).astype(np.uint8)


def _places(image: Image.Image, palette: list[list[int]]) -> NDArray[np.integer]:
    """Returns the index of each pixel's colour in the palette."""
    numbers = _numbers(np.asarray(image.convert("RGB")))
    known = _numbers(np.array(palette))
    order = known.argsort()
    nearest = order[np.searchsorted(known, numbers, sorter=order).clip(max=len(known) - 1)]
    unknown = numbers[known[nearest] != numbers]
    if len(unknown):
        number = int(unknown[0])
        colour = [number >> 16, number >> 8 & 255, number & 255]
        raise _Unknown(f"the mask has the colour {colour}, which is not in data.palette")
    return nearest


def _numbers(colours: NDArray[np.integer]) -> NDArray[np.int64]:
    red, green, blue = np.moveaxis(colours.astype(np.int64), -1, 0)
    return red << 16 | green << 8 | blue


def _colours(image: Image.Image) -> Image.Image:
    # By way of RGBA, as Pillow warns about a palette with transparency otherwise.
    return (image.convert("RGBA") if "transparency" in image.info else image).convert("RGB")
