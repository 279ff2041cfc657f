"""Looks for pictures that are black to a model, though they may not be to the eye."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from torchyard.contract.errors import DataError
from torchyard.models.decoding import largest_value
from torchyard.models.depth import SAVE_8_BITS, WIDEST, looks_black
from trainer.data.images import MAX_MEASURED, Pictures
from trainer.data.picturefiles import PictureFile, opened
from trainer.data.scanning import Scan

MOST_OPENED = 64
"""At most this many pictures of 16 bits are decoded before training, evenly spaced."""
FEW_STEPS = 32
"""Of 256: pictures with fewer steps of grey are told."""


def expect_bright(deep: Sequence[PictureFile], scan: Scan) -> list[str]:
    """Returns what is to be said about pictures with more than 8 bits a value, if they are dark.

    Raises DataError if their values are those of 8 bits, of which the upper bits of 16 have nothing.
    """
    chosen = deep[:: max(1, len(deep) // MOST_OPENED)][:MOST_OPENED]
    measured = [(largest_value(opened(file)), file) for file in scan.each(chosen, "reads pictures of 16 bits")]
    value, file = max(((value, str(file)) for value, file in measured if value is not None), default=(0, ""))
    if looks_black(value):
        raise DataError(f"{file} has 16 bits a value, and the largest one is {value}, so it is black: {SAVE_8_BITS}")
    steps = value // (WIDEST + 1) + 1
    if value > 0 and steps < FEW_STEPS:
        dark = f"they are dark, up to {value:,} of 65,535, and the model sees {steps} steps of 256"
        return [f"the pictures have 16 bits a value: {dark}; scale them for more"]
    return []


def expect_spread(pictures: Pictures, source: str) -> None:
    """Raises DataError if all of the pictures that a normalization is measured on have one value.

    It ends with the first picture that has two: mostly the first one.
    """
    count = min(len(pictures), MAX_MEASURED)
    plan = (torch.arange(count) * len(pictures) // count).split(1)
    seen = {bound for bounds in _bounds(pictures, plan) for bound in bounds}
    if len(seen) < 2:
        raise DataError(
            f"{source}: all pictures for training have the one value {next(iter(seen)):g}, as far as they were read "
            f"({count:,} of {len(pictures):,}): there is nothing to learn. What is in an alpha channel is not read"
        )


def _bounds(pictures: Pictures, plan: Sequence[Tensor]) -> Iterable[tuple[float, float]]:
    """Yields the least and the largest value of each picture, until one differs from the first."""
    first: float | None = None
    for single in plan:
        for picture, _ in pictures.batches([single], device=torch.device("cpu"), workers=0):
            low, high = (bound.item() for bound in picture.aminmax())
            yield low, high
            first = low if first is None else first
            if low != high or low != first:
                return
