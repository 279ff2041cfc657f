"""A trained model that predicts."""

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
import os
from typing import Any, Generic, TypeVar

from torch import Tensor

from torchyard.contract.errors import ConfigError, DataError
from torchyard.models.loaded import Loaded
from torchyard.models.progress import shown

P = TypeVar("P")
R = TypeVar("R")

MOST_READERS = 8
"""Threads that read files."""


class Model(Loaded, Generic[R, P]):
    """A model that gives logits, with its preprocessing. Its predictions are those of the training's evaluation.

    `module` takes what `prepare` returns, and returns logits.
    """

    @property
    def classes(self) -> list[str]:
        return self.metadata["classes"]

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "model": self.config.model_dump()["model"]["name"],
            "classes": self.classes,
            "preprocessing": self.preprocessing,
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
        with self.computing(advice="use a smaller batch_size"):
            return self.module(inputs).float()

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
