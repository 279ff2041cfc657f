"""The predictions of models."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

OPACITY = 0.5
"""The share of a class's colour in an overlay."""
BACKGROUND = "background"
"""The class that an overlay does not colour."""


@dataclass(frozen=True)
class ClassPrediction:
    """The predicted class of a picture or a text.

    Attributes:
        source: The path of the file, or the text; None for a picture without a file.
        label: The most probable class.
        probability: Its probability, 0 to 1.
        probabilities: The probability of each class.
    """

    source: str | None
    label: str
    probability: float
    probabilities: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields as JSON."""
        return {
            "source": self.source,
            "label": self.label,
            "probability": self.probability,
            "probabilities": self.probabilities,
        }


@dataclass(frozen=True, eq=False)
class MaskPrediction:
    """The predicted mask of a picture.

    Attributes:
        source: The path of the file; None for a picture without a file.
        mask: The class number of each pixel, uint8 (height, width), at the picture's own size, upright.
        share: The fraction of pixels of each class, 0 to 1.
        palette: The colour of each class, `[red, green, blue]`.
        picture: Returns the picture in colours, at the size of the mask.
    """

    source: str | None
    mask: NDArray[np.uint8]
    share: dict[str, float]
    palette: list[list[int]]
    picture: Callable[[], Image.Image] = field(repr=False)

    def save_mask(self, path: str | Path) -> None:
        """Writes the mask as a PNG: black and white for two classes, else in the colours of `palette`.

        Args:
            path: The file to write.
        """
        if len(self.share) == 2:
            image = Image.fromarray(self.mask * np.uint8(255))
        else:
            image = Image.fromarray(self.mask, mode="P")
            image.putpalette([value for colour in self.palette for value in colour])
        image.save(path, "PNG")

    def save_overlay(self, path: str | Path) -> None:
        """Writes the picture as a PNG, with the pixels of each class except `background` in the class's colour.

        Args:
            path: The file to write.
        """
        colours = np.array(self.palette, dtype=np.uint8)[self.mask]
        coloured = np.array([name != BACKGROUND for name in self.share])[self.mask]
        picture = self.picture()
        blended = Image.blend(picture, Image.fromarray(colours), OPACITY)
        Image.composite(blended, picture, Image.fromarray(coloured)).save(path, "PNG")

    def as_dict(self) -> dict[str, Any]:
        """Returns the size and the shares as JSON, without the mask."""
        height, width = self.mask.shape
        return {"source": self.source, "width": width, "height": height, "share": self.share}


def class_predictions(sources: Sequence[str | None], logits: Tensor, classes: Sequence[str]) -> list[ClassPrediction]:
    """Returns the most probable class of each source, for logits (samples, classes)."""
    best: list[int] = logits.argmax(dim=1).tolist()
    return [
        ClassPrediction(source, classes[index], row[index], dict(zip(classes, row, strict=True)))
        for source, index, row in zip(sources, best, logits.softmax(dim=1).tolist(), strict=True)
    ]
