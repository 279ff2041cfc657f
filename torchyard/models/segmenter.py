"""Predicts masks of pictures."""

from collections.abc import Mapping, Sequence
from functools import partial
import math
from typing import Annotated, Any, Self

import numpy as np
from pydantic import BaseModel, Field, model_validator
import torch
from torch import Tensor, nn
from torch.nn import functional

from torchyard.contract.recipes import Segmentation
from torchyard.models import unet
from torchyard.models.decoding import fit_box
from torchyard.models.inputs import Picture, coloured, name
from torchyard.models.palette import palette
from torchyard.models.pictures import PictureModel
from torchyard.models.predictions import MaskPrediction

CHANNELS = 3

Byte = Annotated[int, Field(ge=0, le=255)]
Colour = Annotated[list[Byte], Field(min_length=3, max_length=3)]


class MaskMetadata(BaseModel, frozen=True, strict=True):
    """What the checkpoint of a model of masks says about its outputs."""

    classes: Annotated[list[str], Field(min_length=2, max_length=256)]
    outputs: Annotated[int, Field(ge=1, le=256)] = 1
    """1: a logit above that of `threshold` is the second class; else the logits of the classes."""
    threshold: Annotated[float, Field(gt=0, lt=1)] = 0.5
    palette: Annotated[list[Colour], Field(min_length=2, max_length=256)] | None = None

    @model_validator(mode="after")
    def _fits_the_classes(self) -> Self:
        count = len(self.classes)
        if self.outputs != count and (self.outputs, count) != (1, 2):
            raise ValueError(f"a model of {count} classes has not {self.outputs} outputs")
        if self.palette is not None and len(self.palette) < count:
            raise ValueError(f"the palette of {count} classes has {len(self.palette)} colours")
        return self


class Segmenter(PictureModel[MaskPrediction]):
    """A segmentation model. Its logits are (samples, outputs, height, width) at the size of its inputs, and it predicts
    a `MaskPrediction`. One output is the logit of the second class.
    """

    def __init__(
        self, module: nn.Module, *, state: Mapping[str, Any], config: Segmentation, device: torch.device
    ) -> None:
        super().__init__(module, state=state, config=config, device=device, channels=CHANNELS)
        self._masks = _metadata(state)
        self.cut = logit(self._masks.threshold)
        """With one output, a logit above it is the second class."""
        self.palette = self._masks.palette or palette(len(self.classes))
        """The colour of each class."""

    def interpret(self, sources: Sequence[Any], read: Sequence[Picture], logits: Tensor) -> list[MaskPrediction]:
        return [
            self._prediction(source, picture, own) for source, picture, own in zip(sources, read, logits, strict=True)
        ]

    def _prediction(self, source: Any, picture: Picture, logits: Tensor) -> MaskPrediction:
        mask = self._mask(picture, logits)
        counts = np.bincount(mask.ravel(), minlength=len(self.classes))
        return MaskPrediction(
            source=name(source),
            mask=mask,
            share={label: float(count) / mask.size for label, count in zip(self.classes, counts, strict=True)},
            palette=self.palette,
            picture=partial(coloured, source),
        )

    def _mask(self, picture: Picture, logits: Tensor) -> "np.ndarray[Any, np.dtype[np.uint8]]":
        """Returns the mask at the picture's own size. What the input leaves out of the picture is the first class."""
        width, height = picture.size
        form = self.form
        box = fit_box(picture.size, (form.width, form.height), form.resize, form.crop_fraction)
        left, top, right, bottom = (round(edge) for edge in box)
        mask = np.zeros((height, width), np.uint8)
        mask[top:bottom, left:right] = self._classes_at(logits, (bottom - top, right - left)).cpu().numpy()
        return mask

    def _classes_at(self, logits: Tensor, size: tuple[int, int]) -> Tensor:
        """Returns the index of the class of each pixel, with the logits interpolated to `size`."""
        best = _resized(logits[0], size)
        if self._masks.outputs == 1:
            return (best > self.cut).byte()
        found = torch.zeros(size, dtype=torch.uint8, device=logits.device)
        for index in range(1, len(logits)):  # one class after the other: all of a large picture take much memory
            own = _resized(logits[index], size)
            found[own > best] = index
            best = torch.maximum(best, own)
        return found


def build(config: Segmentation, state: Mapping[str, Any]) -> nn.Module:
    """Returns the module that a state describes, with random weights."""
    return unet.build(config.model.name, outputs=_metadata(state).outputs)


def logit(probability: float) -> float:
    """Returns the logit of a probability."""
    return math.log(probability / (1 - probability))


def _metadata(state: Mapping[str, Any]) -> MaskMetadata:
    return MaskMetadata.model_validate(dict(state))


def _resized(logits: Tensor, size: tuple[int, int]) -> Tensor:
    if logits.shape == size:
        return logits
    return functional.interpolate(logits[None, None], size, mode="bilinear", align_corners=False)[0, 0]
