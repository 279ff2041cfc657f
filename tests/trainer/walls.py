"""Generated pictures with masks of what they show."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def blob(*, height: int = 32, width: int = 32) -> NDArray[np.bool_]:
    """A block in the upper left, which no turn and no reflection leaves where it is: 3/64 of the picture."""
    mask = np.zeros((height, width), dtype=bool)
    mask[height // 8 : height // 2, width // 8 : width // 4] = True
    return mask


def pair(root: Path, stem: str, *, mask: NDArray[np.bool_] | None = None, value: int = 200) -> tuple[Path, Path]:
    """A picture that has the colour (value, value / 2, 0) where its mask, a blob by default, is positive."""
    truth = blob() if mask is None else mask
    files = root / "images" / f"{stem}.png", root / "masks" / f"{stem}.png"
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
    colour = truth[:, :, None] * np.array([value, value // 2, 0])
    Image.fromarray(colour.astype(np.uint8)).save(files[0])
    Image.fromarray(truth.astype(np.uint8) * 255).save(files[1])
    return files


def walls(root: Path, *, count: int = 8) -> Path:
    """Pairs wall-0, wall-1 and so on, each a little brighter."""
    for number in range(count):
        pair(root, f"wall-{number}", value=20 + 20 * number)
    return root


def shifted(root: Path, *, count: int = 8, size: int = 32) -> Path:
    """Pairs with a block each, wherever the number says."""
    for number in range(count):
        mask = np.roll(blob(height=size, width=size), (5 * number, 3 * number), axis=(0, 1))
        pair(root, f"wall-{number}", mask=mask)
    return root
