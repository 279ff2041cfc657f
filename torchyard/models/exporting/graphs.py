"""The graph that others run: a model with its normalization, named inputs and dimensions that may vary."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
import logging
from pathlib import Path
from typing import Any
import warnings

import torch
from torch import Tensor, nn

from torchyard.contract.errors import ExportError
from torchyard.models.exporting.placing import Content

BATCH, LENGTH = "batch", "length"
OUTPUT = "logits"
TOLERANCE = 1e-5
"""The largest difference of a logit, as a share of the largest one where that is above 1."""


class Pictures(nn.Module):
    """Takes pixels of 0 to 1, of the model's size, and normalizes them as training does."""

    def __init__(self, model: nn.Module, normalize: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model = model
        self.normalize = normalize

    def forward(self, pixels: Tensor) -> Tensor:
        return self.model(self.normalize(pixels))


class Texts(nn.Module):
    """Takes tokens as transformers' models do: with an attention mask of integers."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.model({"input_ids": input_ids, "attention_mask": attention_mask.bool()})


@dataclass(frozen=True)
class Trial:
    """Sources of predictions, what a graph gets of them, and the logits that the model gives."""

    sources: Sequence[Any]
    """Arrays of pixels, or texts."""
    inputs: tuple[Tensor, ...]
    expected: Tensor


Run = Callable[[Trial], Tensor]
"""Returns logits for what a trial has."""


@dataclass(frozen=True)
class Written:
    """What is written, and how it is tried once it is."""

    content: Content
    opened: Callable[[Path], Run]
    """Returns what was written as a function."""
    trials: Sequence[Trial]
    card: dict[str, Any]


@dataclass(frozen=True)
class Graph:
    """A module in evaluation mode on the CPU, what varies in its inputs, and inputs to try it with."""

    module: nn.Module
    axes: Mapping[str, Mapping[int, str]]
    """The dimensions that vary, by input and place, each with its name."""
    trials: Sequence[Trial]
    longest: int = 0
    """The most tokens of a text."""

    def traced(self) -> torch.export.ExportedProgram:
        """Returns the graph without Python. Raises ExportError."""
        names = {BATCH: torch.export.Dim(BATCH)}
        if self.longest:
            names[LENGTH] = torch.export.Dim(LENGTH, max=self.longest)
        shapes = {name: {place: names[axis] for place, axis in axes.items()} for name, axes in self.axes.items()}
        largest = max(self.trials, key=lambda trial: trial.inputs[0].numel())  # a dimension of 1 is taken as fixed
        with quiet(), torch.no_grad():
            try:
                return torch.export.export(self.module, largest.inputs, dynamic_shapes=shapes, strict=False)
            except Exception as error:
                raise ExportError(f"the model cannot be exported: {reason(error)}") from error


def compare(run: Run, trials: Sequence[Trial]) -> float:
    """Returns the largest difference between what `run` gives and the model. Raises ExportError beyond TOLERANCE."""
    worst = 0.0
    for trial in trials:
        with torch.no_grad():
            found = run(trial)
        if found.shape != trial.expected.shape:
            shapes = f"{tuple(found.shape)}, not {tuple(trial.expected.shape)}"
            raise ExportError(f"what was written gives logits of another shape than the model: {shapes}")
        if not trial.expected.isfinite().all():
            raise ExportError("the model's logits are NaN or infinite: its weights are of no use")
        difference = (found - trial.expected).abs().max().item()
        allowed = TOLERANCE * max(1.0, trial.expected.abs().max().item())
        if not difference <= allowed:  # false for NaN, too
            raise ExportError(
                f"what was written does not compute what the model does: logits differ by {difference:.2g}, "
                f"and {allowed:.2g} is allowed"
            )
        worst = max(worst, difference)
    return worst


def reason(error: Exception) -> str:
    """Returns the first line of an error's message."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


@contextmanager
def quiet() -> Generator[None]:
    """Hides what torch's exporters warn about their own code."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logger.setLevel(level)
