"""Predicts the classes of pictures."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchyard.contract.errors import DataError
from torchyard.contract.recipes import ImageClassification
from torchyard.models import vision
from torchyard.models.inputs import Picture, name
from torchyard.models.pictures import PictureMetadata, PictureModel
from torchyard.models.predictions import ClassPrediction, class_predictions


class Classifier(PictureModel[ClassPrediction]):
    """A classifier of pictures. Its logits are (samples, classes), and it predicts a `ClassPrediction`."""

    def __init__(
        self, module: nn.Module, *, state: Mapping[str, Any], config: ImageClassification, device: torch.device
    ) -> None:
        channels = vision.channels_for(config.model.name, state["input"]["channels"])
        super().__init__(module, state=state, config=config, device=device, channels=channels)

    def interpret(self, sources: Sequence[Any], read: Sequence[Picture], logits: Tensor) -> list[ClassPrediction]:
        return class_predictions([name(source) for source in sources], logits, self.classes)


def build(config: ImageClassification, state: Mapping[str, Any]) -> nn.Module:
    """Returns the module that a state describes, with random weights. Raises ConfigError and DataError."""
    found = PictureMetadata.model_validate(dict(state))
    if config.model.options:
        _check_options(config, state["model"])
    return vision.construct(
        config.model.name,
        channels=found.input.channels,
        height=found.input.height,
        width=found.input.width,
        classes=len(found.classes),
        for_published=vision.is_published(config.model.weights),
        options=config.model.options,
    )


def _check_options(config: ImageClassification, tensors: Mapping[str, Tensor]) -> None:
    """Raises DataError if the options say that there are more layers than tensors: a library makes lists of as many."""
    options = config.model.options
    depths = options.get("depths", options.get("num_hidden_layers", 1))
    if (sum(depths) if isinstance(depths, list) else depths) > len(tensors):
        raise DataError(f"it has {len(tensors)} tensors, and says that it has more layers")
