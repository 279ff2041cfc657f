"""The format `safetensors`: the weights, with all else that `torchyard.load` needs in the header."""

from collections.abc import Callable
from functools import partial
import json
from pathlib import Path

from torch import Tensor

from torchyard.models.checkpoint import FORMAT, HEADER_KEY
from torchyard.models.exporting.graphs import Run, Trial
from torchyard.models.exporting.tensorfiles import write
from torchyard.models.loaded import Loaded
from torchyard.models.loading import load
from torchyard.models.model import Model


def content(model: Loaded) -> Callable[[Path], None]:
    """Returns what writes the file."""
    header = json.dumps({"format": FORMAT, **model.metadata})
    return partial(write, tensors=model.module.state_dict(), metadata={HEADER_KEY: header})


def opened(path: Path) -> Run:
    """Returns the model in the file as a function."""
    model = load(path, device="cpu")
    assert isinstance(model, Model)

    def run(trial: Trial) -> Tensor:
        return model.module(model.prepare(trial.sources))

    return run
