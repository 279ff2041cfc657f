"""A trained model that predicts."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
import os
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.recipes import Recipe
from torchyard.models.checkpoint import metadata_of, reason
from torchyard.models.placement import evaluating, precision
from torchyard.models.progress import shown

P = TypeVar("P")
R = TypeVar("R")

MOST_READERS = 8
"""Threads that read files."""


class Model(ABC, Generic[R, P]):
    """The weights of a checkpoint with their preprocessing. Its predictions are those of the training's evaluation."""

    def __init__(self, module: nn.Module, *, state: Mapping[str, Any], config: Recipe, device: torch.device) -> None:
        """`module` has the weights of `state`, and is on `device`."""
        self.module = module.eval()
        """Takes what `prepare` returns, and returns logits."""
        self.device = device
        self.config = config
        self.metadata = metadata_of(state)
        """What the checkpoint says about the use of its weights, by the keys of `state.pt`."""
        self._precision = precision(config.training.precision, device)

    @property
    def recipe(self) -> str:
        return self.metadata["recipe"]

    @property
    def classes(self) -> list[str]:
        return self.metadata["classes"]

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics that the checkpoint was saved with."""
        return self.metadata.get("metrics", {})

    @property
    def card(self) -> dict[str, Any]:
        """What the model is, for people and JSON."""
        return {
            "recipe": self.recipe,
            "model": self.config.model_dump()["model"]["name"],
            "classes": self.classes,
            "preprocessing": self.preprocessing,
            "metrics": self.metrics,
            "epoch": self.metadata.get("epoch"),
            "step": self.metadata.get("step"),
        }

    @property
    @abstractmethod
    def preprocessing(self) -> dict[str, Any]:
        """How a source becomes the module's inputs, for people and JSON."""

    def predict(self, source: Any, *, batch_size: int = 32, progress: bool | None = None) -> Any:
        """Returns the prediction of a source, or a list of those of a list or a folder. Raises DataError.

        `progress`: whether a terminal shows a bar; None: if there are several batches.
        """
        sources, are_many = self.listed(source)
        found = list(self.predictions(sources, batch_size=batch_size, progress=progress))
        return found if are_many else found[0]

    def predictions(self, sources: Sequence[Any], *, batch_size: int = 32, progress: bool | None = None) -> Iterator[P]:
        """Yields the prediction of each source, as `listed` returns them, when its batch is computed.

        Raises DataError.
        """
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}, and must be at least 1")
        wanted = len(sources) > batch_size if progress is None else progress
        with shown(len(sources), wanted=wanted) as advance:
            for batch in self._read_ahead(sources, batch_size):
                yield from self._predicted([item for item, _ in batch], [read for _, read in batch])
                advance(len(batch))

    def prepare(self, sources: Sequence[Any]) -> Any:
        """Returns the inputs of the module for one batch of sources: files or arrays, or texts. Raises DataError."""
        return self.collate([self.read(source) for source in sources])

    def logits(self, inputs: Any) -> Tensor:
        """Returns what the module says of inputs that `prepare` returned, in the number format of the training."""
        try:
            with torch.no_grad(), evaluating(self._precision, self.device):
                return self.module(inputs).float()
        except torch.OutOfMemoryError as error:
            raise ConfigError(f"{self.device} has too little memory for a batch: use a smaller batch_size") from error
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise DataError(f"the model cannot compute a batch: {reason(error)}") from error

    @abstractmethod
    def listed(self, source: Any) -> tuple[list[Any], bool]:
        """Returns the single sources in `source`, and whether it may have several: a list or a folder.

        Raises DataError.
        """

    @abstractmethod
    def read(self, source: Any) -> R:
        """Returns a single source as the module will take it. Several threads call it. Raises DataError."""

    @abstractmethod
    def collate(self, read: Sequence[R]) -> Any:
        """Returns the inputs of the module."""

    @abstractmethod
    def interpret(self, sources: Sequence[Any], read: Sequence[R], logits: Tensor) -> list[P]:
        """Returns the prediction of each source."""

    def _predicted(self, sources: Sequence[Any], read: Sequence[R]) -> list[P]:
        logits = self.logits(self.collate(read))
        if not bool(logits.isfinite().all()):
            raise DataError("the model gives numbers that are not finite: its weights cannot be used")
        return self.interpret(sources, read, logits)

    def _read_ahead(self, sources: Sequence[Any], batch_size: int) -> Iterator[list[tuple[Any, R]]]:
        """Yields each batch of sources with what was read of them, while threads read the next batch."""
        pool = ThreadPoolExecutor(min(MOST_READERS, os.cpu_count() or 1))
        try:
            waiting: deque[list[tuple[Any, Future[R]]]] = deque()
            for batch in _batches(sources, batch_size):
                waiting.append([(source, pool.submit(self.read, source)) for source in batch])
                if len(waiting) > 1:
                    yield [(source, future.result()) for source, future in waiting.popleft()]
            for batch in waiting:
                yield [(source, future.result()) for source, future in batch]
        finally:
            pool.shutdown(cancel_futures=True)


def _batches(sources: Iterable[Any], size: int) -> Iterator[list[Any]]:
    left = iter(sources)
    while batch := list(islice(left, size)):
        yield batch
