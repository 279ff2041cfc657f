"""Pictures as arrays."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from torchyard.contract.errors import DataError
from torchyard.models.decoding import Resize, covering

GREY = (0.299, 0.587, 0.114)
"""Shares of red, green and blue in a grey value (ITU-R BT.601)."""
KINDS = "pictures are uint8 of 0…255, or floats of 0…1: convert them"
_ROUNDING = 1e-3


def picture(array: Any, *, channels: int) -> Tensor:
    """Returns a numpy array or a tensor as (channels, height, width), uint8 or floats of 0…1. Raises DataError.

    The array is (height, width), or has 1 or 3 channels as its last or its first dimension.
    """
    values = array.detach().cpu() if isinstance(array, Tensor) else _tensor(array)
    if values.ndim == 2:
        values = values[None]
    elif values.ndim == 3 and values.shape[2] in (1, 3):
        values = values.permute(2, 0, 1)
    elif values.ndim != 3 or values.shape[0] not in (1, 3):
        raise DataError(f"an array of shape {tuple(values.shape)} is not a picture with 1 or 3 channels")
    if 0 in values.shape:
        raise DataError(f"an array of shape {tuple(values.shape)} is an empty picture")
    return _with_channels(_checked(values), channels).contiguous()


def check_range(values: Tensor, *, what: str) -> None:
    """Raises DataError if floats of a picture are not 0…1, in training as in predictions. `what`: whose they are."""
    low, high = (bound.item() for bound in values.aminmax())
    if not math.isfinite(low - high):
        raise DataError(f"{what} NaN or infinite values, and floats of a picture are 0…1: replace them")
    if low < -_ROUNDING or high > 1 + _ROUNDING:
        raise DataError(
            f"{what} values from {low:g} to {high:g}, and floats of a picture are 0…1: scale them, or make them uint8 "
            "of 0…255"
        )


def fitted(pictures: Tensor, size: tuple[int, int], *, resize: Resize, crop_fraction: float = 1.0) -> Tensor:
    """Returns pictures (samples, channels, height, width) with the wanted width and height, and the same dtype.

    As `torchyard.models.decoding.fit` does.
    """
    (wide, high), (height, width) = size, pictures.shape[-2:]
    if resize == "squash":
        return resized(pictures, (high, wide))
    across, down = covering((width, height), size, crop_fraction)
    left, top = round((across - wide) / 2), round((down - high) / 2)
    return resized(pictures, (down, across))[..., top : top + high, left : left + wide].contiguous()


def resized(pictures: Tensor, size: int | tuple[int, int] | None) -> Tensor:
    """Returns pictures (samples, channels, height, width) resized to `size`, with the same dtype; None: unchanged.

    `size`: height and width, or one number for both.
    """
    if size is None:
        return pictures
    sides = (size, size) if isinstance(size, int) else size
    if pictures.shape[-2:] == sides:
        return pictures
    parts = [
        functional.interpolate(part.float(), sides, mode="bilinear", antialias=True, align_corners=False)
        for part in pictures.split(256)
    ]
    if pictures.dtype == torch.uint8:
        return torch.cat([part.round().clamp(0, 255).byte() for part in parts])
    return torch.cat(parts)


def _tensor(array: Any) -> Tensor:
    values = np.asarray(array)
    if values.dtype.kind not in "uf" or values.dtype == np.longdouble:
        raise DataError(
            f"an array of {values.dtype} is not a picture, which is uint8 of 0…255, or floats of 0…1: convert it"
        )
    return torch.from_numpy(np.array(values, dtype=values.dtype.newbyteorder("="), order="C"))  # torch wants its own


def _checked(values: Tensor) -> Tensor:
    if values.dtype == torch.uint8:
        return values
    if not values.is_floating_point():
        raise DataError(
            f"an array of {values.dtype} is not a picture, which is uint8 of 0…255, or floats of 0…1: convert it"
        )
    floats = values.float()
    check_range(floats, what="an array of floats has")
    return floats


def _with_channels(values: Tensor, channels: int) -> Tensor:
    if len(values) == channels:
        return values
    if channels == 3:
        return values.expand(3, -1, -1)
    grey = torch.tensordot(torch.tensor(GREY), values.float(), 1)[None]
    return grey.round().byte() if values.dtype == torch.uint8 else grey
