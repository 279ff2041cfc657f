"""Loads the model of a checkpoint."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.recipes import CausalLm, ImageClassification, Recipe, Segmentation, TextClassification
from torchyard.models import checkpoint, classifier, library, segmenter, texts
from torchyard.models.generator import Generator
from torchyard.models.model import Model
from torchyard.models.opening import opened
from torchyard.models.placement import chosen_device
from torchyard.models.sketching import Sketching

_KINDS: dict[type[Recipe], tuple[Callable[..., nn.Module], Callable[..., Model[Any, Any]]]] = {
    ImageClassification: (classifier.build, classifier.Classifier),
    Segmentation: (segmenter.build, segmenter.Segmenter),
    TextClassification: (texts.build, texts.TextClassifier),
}
"""By recipe, what builds the module, and the model that is made of it."""


def load(
    path: str | Path, *, device: str | torch.device = "auto", base: str | Path | None = None
) -> Model[Any, Any] | Generator:
    """Loads the model of a checkpoint. It runs no code from the file.

    Args:
        path: A `state.pt`, or a `model.safetensors` of `torchyard export`. For a checkpoint in parts, its archive,
            folder or index.
        device: `cpu`, `cuda`, `cuda:1`, …; `auto`: a GPU if there is one.
        base: The folder of the base model of an adapter; None: the folder that the job used.

    Returns:
        A `Classifier`, `Segmenter` or `TextClassifier`; a `Generator` for a language model.

    Raises:
        DataError: The file is not a checkpoint of a recipe, or is damaged.
        ConfigError: The device is not there or has too little memory, or `base` does not fit.

    Example:
        >>> model = torchyard.load("best.pt", device="cpu")
        >>> model.recipe, len(model.classes)
        ('image-classification', 10)
    """
    where = chosen_device(device)
    state = checkpoint.read(path)
    config = checkpoint.config_of(path, state)
    try:
        with torch.random.fork_rng(devices=[]):  # loading draws no numbers of the program that loads
            return _loaded(config, state, device=where, base=base)
    except torch.OutOfMemoryError as error:
        raise ConfigError(f"{where} has too little memory for the model of {path}") from error
    except BaseException as error:  # what a library says of metadata that anyone may have written
        checkpoint.raise_unless_failed(error)
        raise DataError(f"{path} cannot be used: {checkpoint.reason(error)}") from error


def check_size(config: Recipe, state: Mapping[str, Any]) -> None:
    """Raises DataError if the weights do not fit the model that the state describes. The model takes no memory."""
    if type(config) in _KINDS:  # a language model is compared where it is opened
        build, _ = _KINDS[type(config)]
        with Sketching():
            library.check_shapes(build(config, state), state["model"])


def _loaded(
    config: Recipe, state: Mapping[str, Any], *, device: torch.device, base: str | Path | None
) -> Model[Any, Any] | Generator:
    if isinstance(config, CausalLm):
        language = opened(config, state, device=device, base=None if base is None else Path(base))
        return Generator(language, state=state, config=config, device=device)
    if base is not None:
        raise ConfigError(f"a base is for an adapter of causal-lm, and this is a model of {state['recipe']}")
    build, make = _KINDS[type(config)]
    check_size(config, state)
    module = build(config, state)
    checkpoint.fill(module, state["model"])
    return make(module.to(device), state=state, config=config, device=device)
