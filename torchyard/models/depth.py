"""Pictures with more than 8 bits a value, or with floats: what of them becomes the 8 bits that models take."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

WIDEST = 255
"""The largest value of 8 bits."""
SAVE_8_BITS = "save it with 8 bits, or use all 16"
_OF_16_BITS = {"PNG", "PPM"}
"""Formats of which Pillow's mode `I` has values of 16 bits."""
_ROUNDING = 1e-3


def is_deep(mode: str) -> bool:
    """Returns whether pictures of a mode of Pillow have more than 8 bits a value."""
    return mode in {"I", "F"} or mode.startswith("I;16")


def eight_bits(image: Image.Image, kind: str | None) -> Image.Image:
    """Returns a grey picture with 8 bits a value: the upper ones of 16, or floats of 0…1 times 255.

    `kind`: the format of its file, if it was one. Raises ValueError where nobody knows which value is white.
    """
    values: NDArray[Any] = np.asarray(image)
    if image.mode == "F":
        low, high = float(values.min()), float(values.max())
        if not (low >= -_ROUNDING and high <= 1 + _ROUNDING):
            raise ValueError(
                f"its floats are {low:g} to {high:g}, and those of a picture 0…1: scale them, or save it with 8 bits"
            )
        return Image.fromarray((values.clip(0, 1) * WIDEST).round().astype(np.uint8))
    if image.mode == "I" and kind not in _OF_16_BITS:
        raise ValueError(
            f"its values have 32 bits, and nobody knows which one is white ({values.min()} to {values.max()} are "
            "there): save it with 8 or 16 bits"
        )
    return Image.fromarray((values >> 8).clip(0, WIDEST).astype(np.uint8))


def largest(image: Image.Image, kind: str | None) -> int | None:
    """Returns the largest value of a picture of 16 bits, of which `eight_bits` takes the upper ones; None: another."""
    of_16_bits = image.mode.startswith("I;16") or (image.mode == "I" and kind in _OF_16_BITS)
    return int(np.asarray(image).max()) if of_16_bits else None


def looks_black(value: int) -> bool:
    """Returns whether a picture of 16 bits becomes black, though it is not: its values are those of 8 bits."""
    return 0 < value <= WIDEST
