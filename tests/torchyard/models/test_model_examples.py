"""The docstrings of the models: their examples run on a checkpoint, and they name each parameter."""

from pathlib import Path

import numpy as np
from PIL import Image
import pytest

from tests.docstrings import examples_of, run_example, unnamed_parameters
from tests.trainer.test_evaluate import RECIPES, checkpoint
import torchyard
from torchyard import models as package
from torchyard.models.generator import Generator
from torchyard.models.loading import load
from torchyard.models.model import Model
from torchyard.models.predictions import MaskPrediction


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a checkpoint and a picture."""
    (tmp_path / "data").mkdir()
    recipe = "image-classification"
    path, _ = checkpoint(tmp_path, recipe, RECIPES[recipe](tmp_path / "data"))
    path.rename(tmp_path / "best.pt")
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "photo.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_example_of_the_models_prints_what_it_shows(folder: Path) -> None:
    for example in examples_of(package, load, Model, package.export):
        run_example(example, {"np": np, "torchyard": torchyard})
    assert (folder / "best.safetensors").exists()


def test_each_parameter_of_the_models_is_described() -> None:
    assert unnamed_parameters(load, package.export, Model, Generator, MaskPrediction) == []
