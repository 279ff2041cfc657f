"""Predictions are what the run's evaluation measured, with the downloaded file alone."""

from dataclasses import dataclass
import io
import json
from pathlib import Path
import shutil
import sys
from typing import Any

import numpy as np
from PIL import Image
import pytest
import torch

from tests.approved import Approved
from tests.torchyard.models.trained import MASKS, PICTURES, TEXTS, WORDS, digits, run
import torchyard
from torchyard.contract.errors import ConfigError, DataError
from torchyard.models.predictions import ClassPrediction, MaskPrediction
from trainer.data.pairs import load_pairs
from trainer.data.texts import load_texts


@dataclass(frozen=True)
class Trained:
    """The `state.pt` of a run, what it held out, and the truth about that."""

    state: Path
    sources: list[Any]
    truth: list[Any]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    """Trains a model of each recipe."""
    return {trainer: _trained(tmp_path_factory.mktemp(trainer), trainer) for trainer in (PICTURES, MASKS, TEXTS)}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, trained: dict[str, Trained]) -> dict[str, Any]:
    """Each recipe's model, loaded from its file alone. test_alone.py does so without the packages of the server."""
    folder = tmp_path_factory.mktemp("fresh")
    files = {trainer: Path(shutil.copy(of.state, folder / f"{trainer}.pt")) for trainer, of in trained.items()}
    return {trainer: torchyard.load(file, device="cpu") for trainer, file in files.items()}


@pytest.fixture(scope="module")
def predicted(models: dict[str, Any], trained: dict[str, Trained]) -> dict[str, list[Any]]:
    """Predicts what was held out."""
    found = {trainer: models[trainer].predict(of.sources) for trainer, of in trained.items()}
    return {trainer: [each.mask if trainer == MASKS else each.label for each in of] for trainer, of in found.items()}


def _trained(folder: Path, trainer: str) -> Trained:
    state = run(folder, trainer)
    config: Any = torchyard.load(state, device="cpu").config
    if trainer == PICTURES:
        arrays = np.load(folder / "small.npz")
        return Trained(state, list(arrays["x_test"]), [str(label) for label in arrays["y_test"]])
    if trainer == MASKS:
        pairs = load_pairs(folder / "data", config.data).val.pairs
        truth = [np.asarray(Image.open(str(pair.mask))) > 0 for pair in pairs]
        return Trained(state, [str(pair.picture) for pair in pairs], truth)
    texts = load_texts(folder / "data", config.data)
    return Trained(state, texts.val.texts, [texts.classes[label] for label in texts.val.labels.tolist()])


@pytest.mark.parametrize("trainer", [PICTURES, TEXTS])
def test_classes_get_the_accuracy_that_the_run_reported(
    trained: dict[str, Trained], predicted: dict[str, list[Any]], models: dict[str, Any], trainer: str
) -> None:
    accuracy = np.mean([one == other for one, other in zip(predicted[trainer], trained[trainer].truth, strict=True)])
    assert models[trainer].metrics["val/accuracy"] == pytest.approx(accuracy, abs=1e-12)
    assert 0 < accuracy < 1


def test_masks_get_the_iou_that_the_run_reported(
    trained: dict[str, Trained], predicted: dict[str, list[Any]], models: dict[str, Any]
) -> None:
    masks, truth = np.array(predicted[MASKS]) == 1, np.array(trained[MASKS].truth)
    iou = (masks & truth).sum() / (masks | truth).sum()
    assert models[MASKS].metrics["val/iou"] == pytest.approx(iou, abs=1e-12)
    assert 0 < iou < 1


def test_a_language_model_goes_on_as_the_run_has_shown(tmp_path: Path) -> None:
    state = run(tmp_path, WORDS)
    shown = json.loads((state.parent / "samples.json").read_text())
    model: Any = torchyard.load(state, device="cpu")
    prompts = [each["prompt"] for each in shown]
    found = model.predict(prompts, max_new_tokens=model.config.evaluation.new_tokens)
    assert [each.text for each in found] == [each["continuation"] for each in shown]
    assert len(found) == model.config.evaluation.samples and any(each.text for each in found)


@pytest.mark.parametrize("trainer", [PICTURES, MASKS, TEXTS])
def test_a_model_says_what_it_is(models: dict[str, Any], trainer: str) -> None:
    model = models[trainer]
    card = json.loads(json.dumps(model.card))
    assert (card["recipe"], card["epoch"]) == (trainer, model.config.training.epochs)
    assert card["model"] == {PICTURES: "small_cnn", MASKS: "unet_small", TEXTS: "tiny"}[trainer]
    assert card["classes"] == model.classes and len(model.classes) >= 2
    assert card["metrics"] == model.metrics and card["preprocessing"]
    assert model.metadata["format"] == 1
    assert not model.module.training


def test_one_source_gets_one_prediction_and_several_get_a_list_in_any_batches(models: dict[str, Any]) -> None:
    model = models[PICTURES]
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
    with pytest.raises(ConfigError, match="batch_size must be at least 1; got 0"):
        model.predict(pictures[0], batch_size=0)


def test_inputs_and_logits_are_those_of_the_module(models: dict[str, Any]) -> None:
    model = models[TEXTS]
    inputs = model.prepare(["a fine film", "dull"])
    assert set(inputs) == {"input_ids", "attention_mask"}
    logits = model.logits(inputs)
    assert torch.equal(logits, model.module(inputs)) and logits.shape == (2, 2)
    found = model.predict(["a fine film", " dull \n"])
    assert [prediction.probabilities["good"] for prediction in found] == logits.softmax(1)[:, 1].tolist()


def test_the_lines_of_a_file_are_texts(tmp_path: Path, models: dict[str, Any], approved: Approved) -> None:
    model = models[TEXTS]
    file = tmp_path / "texts.txt"
    file.write_bytes("a fine film\r\n\n  \ncaf\xe9\n".encode("cp1252"))
    assert [prediction.source for prediction in model.predict(file)] == ["a fine film", "café"]
    file.write_bytes(b"PNG\x00\x01")
    with pytest.raises(DataError) as raised:
        model.predict(file)
    assert str(raised.value) == approved("message", tmp_path=tmp_path)
    file.write_text("\n \n")
    with pytest.raises(DataError, match="has no text"):
        model.predict(file)


@pytest.mark.parametrize(
    ("text", "message"), [("", "empty"), (" \n", "empty"), ("a\ud800b", "surrogate"), (5, "is a string")]
)
def test_a_text_that_is_none_is_an_error(models: dict[str, Any], text: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        models[TEXTS].predict(["fine", text])


def test_a_long_text_is_cut(models: dict[str, Any]) -> None:
    model = models[TEXTS]
    assert model.prepare(["fine " * 50_000])["input_ids"].shape == (1, 128)
    assert isinstance(model.predict("fine " * 50_000), ClassPrediction)


def test_a_mask_has_the_size_of_its_picture_and_is_written(tmp_path: Path, models: dict[str, Any]) -> None:
    model = models[MASKS]
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


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_bar(models: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    pictures, _ = digits()
    for stderr, progress, shown in (
        (Terminal(), None, True),
        (Terminal(), False, False),
        (io.StringIO(), True, False),
    ):
        monkeypatch.setattr(sys, "stderr", stderr)
        models[PICTURES].predict(pictures[:4, None], batch_size=2, progress=progress)
        assert ("predicting" in stderr.getvalue()) == shown
