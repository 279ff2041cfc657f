"""Generated pictures of shapes with masks of their classes."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from torchyard.models.palette import palette

CLASSES = ["background", "square", "disc", "stripes"]
_COLOURS = np.array([[30, 30, 30], [200, 40, 40], [40, 200, 40], [40, 40, 200]], dtype=np.float64)


def shapes(root: Path, *, count: int = 12, size: int = 32, ignored: bool = False) -> Path:
    """Writes pictures with one square, one disc and stripes, and masks with VOC's palette.

    `ignored`: a line of pixels in each mask has the value 255.
    """
    random = np.random.default_rng(0)
    for folder in ("images", "masks"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        mask = _mask(size, random)
        picture = _COLOURS[mask] + random.normal(scale=12, size=(size, size, 3))
        if ignored:
            mask[size // 2] = 255
        Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(root / "images" / f"shape-{number:02}.png")
        image = Image.frombytes("P", (size, size), mask.tobytes())
        image.putpalette([channel for colour in [*palette(255), [224, 224, 192]] for channel in colour])
        image.save(root / "masks" / f"shape-{number:02}.png")
    return root


def _mask(size: int, random: np.random.Generator) -> NDArray[np.uint8]:
    rows, columns = np.indices((size, size))
    mask = np.zeros((size, size), dtype=np.uint8)
    left, top = random.integers(0, size - 10, 2)
    mask[top : top + 10, left : left + 10] = 1
    right, down = random.integers(6, size - 6, 2)
    mask[(rows - down) ** 2 + (columns - right) ** 2 < 36] = 2
    mask[(rows >= size - 6) & (rows % 3 != 0)] = 3
    return mask
