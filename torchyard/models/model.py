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
    """A trained model with its preprocessing. It predicts as the evaluation during training did.

    `module` is the torch module. It takes the result of `prepare`, and returns logits.
    """

    @property
    def classes(self) -> list[str]:
        """The names of the classes, in the order of the logits."""
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
        """The preprocessing, as JSON: the input's size and normalization, or the tokens."""

    def predict(self, source: Any, *, batch_size: int = 32, progress: bool | None = None) -> Any:
        """Predicts one source, or many.

        Args:
            source: A picture (a path, a PIL image, or an array H × W or H × W × 3) or a text; or a list of them, a
                folder of pictures, or the `Path` of a file with one text a line.
            batch_size: Sources in a batch.
            progress: Show a progress bar on a terminal; None: for several batches.

        Returns:
            A `ClassPrediction` or `MaskPrediction`; a list of them for a list, a folder or a file.

        Raises:
            DataError: A source cannot be read.
            ConfigError: `batch_size` is below 1, or the device has too little memory.

        Example:
            >>> model = torchyard.load("best.pt", device="cpu")
            >>> found = model.predict(["photo.png", np.zeros((8, 8), np.uint8)])
            >>> len(found), 0 < found[0].probability <= 1
            (2, True)
        """
        sources, are_many = self.listed(source)
        found = list(self.predictions(sources, batch_size=batch_size, progress=progress))
        return found if are_many else found[0]

    def predictions(self, sources: Sequence[Any], *, batch_size: int = 32, progress: bool | None = None) -> Iterator[P]:
        """Yields the predictions of many sources, batch after batch.

        Args:
            sources: Single sources: pictures or texts.
            batch_size: Sources in a batch.
            progress: Show a progress bar on a terminal; None: for several batches.

        Raises:
            DataError: A source cannot be read.
            ConfigError: `batch_size` is below 1, or the device has too little memory.

        Example:
            >>> model = torchyard.load("best.pt", device="cpu")
            >>> [found.source for found in model.predictions(["photo.png"])]
            ['photo.png']
        """
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1; got {batch_size}")
        wanted = len(sources) > batch_size if progress is None else progress
        with shown(len(sources), wanted=wanted) as advance:
            for batch in self._read_ahead(sources, batch_size):
                yield from self._predicted([item for item, _ in batch], [read for _, read in batch])
                advance(len(batch))

    def prepare(self, sources: Sequence[Any]) -> Any:
        """Returns the inputs of `module` for one batch.

        Args:
            sources: Single sources: pictures or texts.

        Returns:
            Floats (samples, channels, height, width) for pictures; `input_ids` and `attention_mask` (samples, tokens)
                for texts.

        Raises:
            DataError: A source cannot be read.

        Example:
            >>> model = torchyard.load("best.pt", device="cpu")
            >>> inputs = model.prepare(["photo.png"])
            >>> tuple(inputs.shape), tuple(model.logits(inputs).shape)
            ((1, 1, 8, 8), (1, 10))
        """
        return self.collate([self.read(source) for source in sources])

    def logits(self, inputs: Any) -> Tensor:
        """Returns the logits of one batch as float32, computed in the precision of the training.

        Args:
            inputs: The result of `prepare`.

        Returns:
            (samples, classes); for a `Segmenter` (samples, outputs, height, width).

        Raises:
            ConfigError: The device has too little memory.
            DataError: The inputs do not fit the model.
        """
        with self.computing(advice="use a smaller batch_size"):
            return self.module(inputs).float()

    @abstractmethod
    def listed(self, source: Any) -> tuple[list[Any], bool]:
        """Returns the single sources of `source`, and whether it is a list, a folder or a file."""

    @abstractmethod
    def read(self, source: Any) -> R:
        """Returns a single source, ready for a batch. Several threads call it. Raises DataError."""

    @abstractmethod
    def collate(self, read: Sequence[R]) -> Any:
        """Returns the inputs of `module` for sources that `read` returned."""

    @abstractmethod
    def interpret(self, sources: Sequence[Any], read: Sequence[R], logits: Tensor) -> list[P]:
        """Returns the prediction of each of `sources`, from what `read` returned and its logits."""

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
