"""A model with the weights of a checkpoint."""

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.recipes import Recipe
from torchyard.models.checkpoint import metadata_of, reason
from torchyard.models.placement import evaluating, precision


class Loaded(ABC):
    """A model with the weights of a checkpoint on a device, and the metadata of the checkpoint."""

    def __init__(self, module: nn.Module, *, state: Mapping[str, Any], config: Recipe, device: torch.device) -> None:
        """`module` has the weights of `state`, and is on `device`."""
        self.module = module.eval()
        self.device = device
        self.config = config
        self.metadata = metadata_of(state)
        """What the checkpoint says about the use of its weights, by the keys of `state.pt`."""
        self._precision = precision(config.training.precision, device)

    @property
    def recipe(self) -> str:
        """The recipe that trained the model, such as `image-classification`."""
        return self.metadata["recipe"]

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics that the checkpoint was saved with."""
        return self.metadata.get("metrics", {})

    @property
    def card(self) -> dict[str, Any]:
        """The model card: recipe, model, classes, preprocessing, metrics, epoch and step."""
        return {
            "recipe": self.recipe,
            **self.facts,
            "metrics": self.metrics,
            "epoch": self.metadata.get("epoch"),
            "step": self.metadata.get("step"),
        }

    @property
    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What the card says of a model of this kind."""

    @contextmanager
    def computing(self, *, advice: str) -> Generator[None]:
        """Runs the module in the block as the training's evaluation does.

        Raises ConfigError with `advice` if there is too little memory, and DataError.
        """
        try:
            with torch.no_grad(), evaluating(self._precision, self.device):
                yield
        except torch.OutOfMemoryError as error:
            raise ConfigError(f"{self.device} has too little memory for a batch: {advice}") from error
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise DataError(f"the model cannot compute a batch: {reason(error)}") from error
