"""Generated pictures with masks."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def blob(*, height: int = 32, width: int = 32) -> NDArray[np.bool_]:
    """Returns a block in the upper left, which every turn and every reflection moves: 3/64 of the picture."""
    mask = np.zeros((height, width), dtype=bool)
    mask[height // 8 : height // 2, width // 8 : width // 4] = True
    return mask


def pair(root: Path, stem: str, *, mask: NDArray[np.bool_] | None = None, value: int = 200) -> tuple[Path, Path]:
    """Writes a picture with the colour (value, value / 2, 0) where its mask is positive, and the mask."""
    truth = blob() if mask is None else mask
    files = root / "images" / f"{stem}.png", root / "masks" / f"{stem}.png"
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
    colour = truth[:, :, None] * np.array([value, value // 2, 0])
    Image.fromarray(colour.astype(np.uint8)).save(files[0])
    Image.fromarray(truth.astype(np.uint8) * 255).save(files[1])
    return files


def walls(root: Path, *, count: int = 8) -> Path:
    """Writes the pairs wall-0, wall-1, …, each brighter than the one before."""
    for number in range(count):
        pair(root, f"wall-{number}", value=20 + 20 * number)
    return root


def shifted(root: Path, *, count: int = 8, size: int = 32) -> Path:
    """Writes pairs with one block each, at a place that depends on the number."""
    for number in range(count):
        mask = np.roll(blob(height=size, width=size), (5 * number, 3 * number), axis=(0, 1))
        pair(root, f"wall-{number}", mask=mask)
    return root
