"""What the models of pictures share: their preprocessing."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, Field, model_validator
import torch
from torch import Tensor, nn

from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.recipes import ImageClassification, Normalization, Segmentation
from torchyard.models.checkpoint import Classes
from torchyard.models.inputs import Form, Picture, listed, read, stacked
from torchyard.models.model import Model
from torchyard.models.normalization import Normalizer
from torchyard.models.placement import memory_format

P = TypeVar("P")

MOST_PIXELS = 1 << 24
"""Of an input: a file that asks for more would take all memory."""
MOST_SIDE = 1 << 14

Side = Annotated[int, Field(ge=1, le=MOST_SIDE)]


def check_size(height: int, width: int) -> None:
    """Raises ConfigError for pictures that are too large: no checkpoint of a model of them could be loaded."""
    if max(height, width) > MOST_SIDE or height * width > MOST_PIXELS:
        raise ConfigError(
            f"the pictures have {width}×{height} pixels, and a model takes at most {MOST_SIDE:,} a side and "
            f"{MOST_PIXELS:,} in all: set data.image_size"
        )


class _Input(BaseModel, frozen=True, strict=True):
    channels: Annotated[int, Field(ge=1, le=3)]
    height: Side
    width: Side

    @model_validator(mode="after")
    def _fits_in_memory(self) -> Self:
        if self.height * self.width > MOST_PIXELS:
            raise ValueError(f"an input has at most {MOST_PIXELS} pixels")
        return self


class PictureMetadata(BaseModel, frozen=True, strict=True):
    """What the checkpoint of a model of pictures says about its inputs."""

    classes: Classes
    normalization: Normalization
    input: _Input
    crop_fraction: Annotated[float, Field(gt=0.1, le=1)] = 1.0


class PictureModel(Model[Picture, P]):
    """A model whose inputs are pictures: normalized floats (samples, channels, height, width)."""

    def __init__(
        self,
        module: nn.Module,
        *,
        state: Mapping[str, Any],
        config: ImageClassification | Segmentation,
        device: torch.device,
        channels: int,
    ) -> None:
        """`channels`: those of the module."""
        found = PictureMetadata.model_validate(
            {key: state[key] for key in PictureMetadata.model_fields if key in state}
        )
        if len(found.normalization.mean) not in {1, channels}:
            raise DataError(f"its normalization has {len(found.normalization.mean)} channels, its model {channels}")
        self.memory_format = memory_format(config, device)
        super().__init__(module.to(memory_format=self.memory_format), state=state, config=config, device=device)  # pyright: ignore[reportCallIssue] it is no overload
        shape = found.input
        self.form = Form(shape.channels, shape.height, shape.width, config.data.resize, found.crop_fraction)
        self.channels = channels
        """Those of the module's inputs, which may be three for grey pictures."""
        self._normalization = found.normalization
        self._normalizer = Normalizer(found.normalization, channels=channels, device=device)

    @property
    def preprocessing(self) -> dict[str, Any]:
        form = self.form
        return {
            "input": {"channels": form.channels, "height": form.height, "width": form.width},
            "resize": form.resize,
            "crop_fraction": form.crop_fraction,
            "normalization": self._normalization.model_dump(),
        }

    def listed(self, source: Any) -> tuple[list[Any], bool]:
        return listed(source)

    def read(self, source: Any) -> Picture:
        return read(source, self.form)

    def collate(self, read: Sequence[Picture]) -> Tensor:
        pictures = stacked([picture.pixels for picture in read]).to(self.device)
        return self._normalizer(pictures).contiguous(memory_format=self.memory_format)
