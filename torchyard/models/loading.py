"""Loads the model of a checkpoint."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.recipes import ImageClassification, Recipe, Segmentation, TextClassification
from torchyard.models import checkpoint, classifier, segmenter, texts
from torchyard.models.model import Model
from torchyard.models.placement import chosen_device

_KINDS: dict[type[Recipe], tuple[Callable[..., nn.Module], Callable[..., Model[Any, Any]]]] = {
    ImageClassification: (classifier.build, classifier.Classifier),
    Segmentation: (segmenter.build, segmenter.Segmenter),
    TextClassification: (texts.build, texts.TextClassifier),
}
"""By recipe, what builds the module, and the model that is made of it."""


def load(path: str | Path, *, device: str | torch.device = "auto") -> Model[Any, Any]:
    """Returns the model of a checkpoint, from its `state.pt` or from a `model.safetensors` of `torchyard export`.

    `device`: `cpu`, `cuda`, `cuda:1`, …; `auto` is a GPU if there is one. Nothing in the file is run. Raises DataError
    if it cannot be used, and ConfigError.
    """
    where = chosen_device(device)
    state = checkpoint.read(path)
    config = checkpoint.config_of(path, state)
    build, make = _KINDS[type(config)]
    try:
        with torch.random.fork_rng(devices=[]):  # loading draws no numbers of the program that loads
            module = build(config, state)
        fill(module, state["model"])
        return make(module.to(where), state=state, config=config, device=where)
    except torch.OutOfMemoryError as error:
        raise ConfigError(f"{where} has too little memory for the model of {path}") from error
    except BaseException as error:  # what a library says of metadata that anyone may have written
        checkpoint.raise_unless_failed(error)
        raise DataError(f"{path} cannot be used: {checkpoint.reason(error)}") from error


def fill(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Gives the module its weights. Raises DataError if they do not fit it, or are not finite."""
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        wrong = "; ".join(line.strip() for line in str(error).splitlines()[1:3]) or str(error)
        raise DataError(f"its weights do not fit its model: {wrong}") from error
    for name, parameter in module.named_parameters():
        if not bool(parameter.isfinite().all()):
            raise DataError(f"its weights are not finite: {name}")
