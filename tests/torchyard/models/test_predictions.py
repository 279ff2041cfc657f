"""Predictions are what the run's evaluation measured, with the downloaded file alone."""

from collections.abc import Callable
import json
from pathlib import Path
import shutil
import subprocess
import sys
from typing import Any

import numpy as np
from PIL import Image
import pytest
import torch

from tests.torchyard.models.trained import MASKS, PICTURES, TEXTS, digits, run
import torchyard
from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.recipes import Segmentation, TextClassification
from torchyard.models.predictions import ClassPrediction, MaskPrediction
from trainer.data.images import split_indices
from trainer.data.pairs import load_pairs
from trainer.data.texts import load_texts

PROGRAM = """
import json, sys, torchyard
from pathlib import Path
model = torchyard.load("best.pt", device="cpu")
assert "trainer" not in sys.modules
read = json.loads(Path("sources.json").read_text())
if model.recipe == "image-classification":
    import numpy as np
    read = list(np.array(read, dtype="float32"))
found = model.predict(read)
if model.recipe == "segmentation":
    print(json.dumps([prediction.mask.tolist() for prediction in found]))
else:
    print(json.dumps([prediction.label for prediction in found]))
"""


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Returns the state.pt of a run of a recipe."""
    made: dict[str, Path] = {}

    def state(trainer: str) -> Path:
        if trainer not in made:
            made[trainer] = run(tmp_path_factory.mktemp(trainer), trainer)
        return made[trainer]

    return state


def data_of(state: Path) -> Path:
    return state.parents[5] / "data" if (state.parents[5] / "data").is_dir() else state.parents[4] / "data"


def predicted(folder: Path, state: Path, sources: Any) -> Any:
    """Predicts in a process of its own, in a folder with the checkpoint alone."""
    shutil.copy(state, folder / "best.pt")
    (folder / "sources.json").write_text(json.dumps(sources))
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_arrays_get_the_accuracy_that_the_run_reported(tmp_path: Path, states: Callable[[str], Path]) -> None:
    state = states(PICTURES)
    pictures, labels = digits()
    _, val = split_indices(torch.from_numpy(labels), fraction=0.15, seed=0)
    found = predicted(tmp_path, state, pictures[val].tolist())
    accuracy = np.mean([int(label) for label in found] == labels[val])
    assert torchyard.load(state, device="cpu").metrics["val/accuracy"] == pytest.approx(accuracy, abs=1e-12)
    assert accuracy > 0.5


def test_masks_get_the_iou_that_the_run_reported(tmp_path: Path, states: Callable[[str], Path]) -> None:
    state = states(MASKS)
    model = torchyard.load(state, device="cpu")
    assert isinstance(model.config, Segmentation)
    val = load_pairs(data_of(state), model.config.data).val.pairs
    masks = np.array(predicted(tmp_path, state, [str(pair.picture) for pair in val]))
    truth = np.array([np.asarray(Image.open(pair.mask)) > 0 for pair in val])
    iou = ((masks == 1) & truth).sum() / ((masks == 1) | truth).sum()
    assert model.metrics["val/iou"] == pytest.approx(iou, abs=1e-12)
    assert 0 < iou < 1


def test_texts_get_the_accuracy_that_the_run_reported(tmp_path: Path, states: Callable[[str], Path]) -> None:
    state = states(TEXTS)
    model = torchyard.load(state, device="cpu")
    assert isinstance(model.config, TextClassification)
    val = load_texts(data_of(state), model.config.data).val
    found = predicted(tmp_path, state, val.texts)
    right = [model.classes.index(label) == truth for label, truth in zip(found, val.labels.tolist(), strict=True)]
    assert model.metrics["val/accuracy"] == pytest.approx(np.mean(right), abs=1e-12)


@pytest.mark.parametrize("trainer", [PICTURES, MASKS, TEXTS])
def test_a_model_says_what_it_is(states: Callable[[str], Path], trainer: str) -> None:
    model = torchyard.load(states(trainer), device="cpu")
    card = json.loads(json.dumps(model.card))
    assert (card["recipe"], card["epoch"]) == (trainer, 1)
    assert card["model"] == {PICTURES: "small_cnn", MASKS: "unet_small", TEXTS: "tiny"}[trainer]
    assert card["classes"] == model.classes and len(model.classes) >= 2
    assert card["metrics"] == model.metrics and card["preprocessing"]
    assert model.metadata["format"] == 1
    assert not model.module.training


def test_one_source_gets_one_prediction_and_several_get_a_list_in_any_batches(states: Callable[[str], Path]) -> None:
    model = torchyard.load(states(PICTURES), device="cpu")
    pictures, _ = digits()
    one = model.predict(pictures[0])
    assert isinstance(one, ClassPrediction)
    assert one.probability == one.probabilities[one.label] == max(one.probabilities.values())
    assert sum(one.probabilities.values()) == pytest.approx(1)
    whole = model.predict(list(pictures[:7]))
    for batch_size in (1, 3, 7):
        parts = model.predict(pictures[:7, :, :, None], batch_size=batch_size)
        assert [part.label for part in parts] == [prediction.label for prediction in whole]
    assert model.predict([]) == []
    with pytest.raises(ConfigError, match="batch_size is 0"):
        model.predict(pictures[0], batch_size=0)


def test_inputs_and_logits_are_those_of_the_module(states: Callable[[str], Path]) -> None:
    model = torchyard.load(states(TEXTS), device="cpu")
    inputs = model.prepare(["a fine film", "dull"])
    assert set(inputs) == {"input_ids", "attention_mask"}
    logits = model.logits(inputs)
    assert torch.equal(logits, model.module(inputs)) and logits.shape == (2, 2)
    found = model.predict(["a fine film", " dull \n"])
    assert [prediction.probabilities["good"] for prediction in found] == logits.softmax(1)[:, 1].tolist()


def test_the_lines_of_a_file_are_texts(tmp_path: Path, states: Callable[[str], Path]) -> None:
    model = torchyard.load(states(TEXTS), device="cpu")
    file = tmp_path / "texts.txt"
    file.write_bytes("a fine film\r\n\n  \ncaf\xe9\n".encode("cp1252"))
    assert [prediction.source for prediction in model.predict(file)] == ["a fine film", "café"]
    file.write_bytes(b"PNG\x00\x01")
    with pytest.raises(DataError, match="not a file of text"):
        model.predict(file)
    file.write_text("\n \n")
    with pytest.raises(DataError, match="has no text"):
        model.predict(file)


@pytest.mark.parametrize(
    ("text", "message"), [("", "empty"), (" \n", "empty"), ("a\ud800b", "surrogate"), (5, "is a string")]
)
def test_a_text_that_is_none_is_an_error(states: Callable[[str], Path], text: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        torchyard.load(states(TEXTS), device="cpu").predict(["fine", text])


def test_a_long_text_is_cut(states: Callable[[str], Path]) -> None:
    model = torchyard.load(states(TEXTS), device="cpu")
    assert model.prepare(["fine " * 200_000])["input_ids"].shape == (1, 128)
    assert isinstance(model.predict("fine " * 200_000), ClassPrediction)


def test_a_mask_has_the_size_of_its_picture_and_is_written(tmp_path: Path, states: Callable[[str], Path]) -> None:
    model = torchyard.load(states(MASKS), device="cpu")
    Image.new("RGB", (75, 50), (200, 100, 0)).save(tmp_path / "wall.png")
    found = model.predict(tmp_path / "wall.png")
    assert isinstance(found, MaskPrediction)
    assert found.mask.shape == (50, 75) and found.mask.dtype == np.uint8
    assert found.share["foreground"] == pytest.approx((found.mask == 1).mean())
    assert json.loads(json.dumps(found.as_dict()))["width"] == 75
    marked = MaskPrediction(
        found.source, np.arange(3750, dtype=np.uint8).reshape(50, 75) % 2, found.share, found.palette, found.picture
    )
    marked.save_mask(tmp_path / "mask.png")
    marked.save_overlay(tmp_path / "overlay.png")
    mask, overlay = (np.asarray(Image.open(tmp_path / f"{name}.png")) for name in ("mask", "overlay"))
    assert np.array_equal(mask, marked.mask * 255)
    assert np.array_equal(overlay[marked.mask == 0], np.full((1875, 3), (200, 100, 0)))
    assert np.array_equal(overlay[marked.mask == 1], np.full((1875, 3), overlay[0, 1]))
    assert tuple(overlay[0, 1]) != (200, 100, 0)


def test_a_bar_is_shown_where_it_is_wanted(states: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    model = torchyard.load(states(PICTURES), device="cpu")
    pictures, _ = digits()
    model.predict(pictures[:4, None], batch_size=2)
    assert capsys.readouterr().err == ""  # it is no terminal
    model.predict(pictures[:4, None], batch_size=2, progress=True)
    assert "predicting" in capsys.readouterr().err
