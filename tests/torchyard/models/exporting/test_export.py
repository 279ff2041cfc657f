"""Exports of the recipes' checkpoints, run as others would run them, beside what `predict` says."""

from collections.abc import Callable
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
import pytest
import torch

from tests.approved import Approved
from tests.torchyard.models.test_loading import walls
from tests.trainer.test_evaluate import RECIPES, checkpoint
from torchyard.contract.errors import ExportError
from torchyard.contract.models.names import Format
from torchyard.models import Exported, Model, TextClassifier, export, load, unet
from torchyard.models.exporting import folders, onnxfiles, weights
from torchyard.models.exporting.graphs import Run, Trial

GRAPHS: tuple[Format, ...] = ("torch-export", "onnx")
PICTURES = {"image-classification": 8, "segmentation": 32}
TEXTS = ["a fine film", "dull, dull, dull <s> 😀 " * 40]

Loaded = Callable[[str], Model[Any, Any]]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """Returns the model of a recipe's checkpoint."""
    models: dict[str, Model[Any, Any]] = {}

    def get(trainer: str) -> Model[Any, Any]:
        if trainer not in models:
            folder = tmp_path_factory.mktemp(trainer)
            (folder / "data").mkdir()
            path, _ = checkpoint(folder, trainer, RECIPES[trainer](folder / "data"))
            model = load(path, device="cpu")
            assert isinstance(model, Model)
            models[trainer] = model
        return models[trainer]

    return get


@pytest.mark.parametrize(
    ("trainer", "to"),
    [
        pytest.param("segmentation", "torch-export", marks=pytest.mark.thorough),
        pytest.param("image-classification", "onnx", marks=pytest.mark.thorough),
        pytest.param("image-classification", "torch-export", marks=pytest.mark.thorough),
        pytest.param("segmentation", "onnx", marks=pytest.mark.thorough),
    ],
)
def test_a_graph_takes_the_pixels_of_files(loaded: Loaded, tmp_path: Path, trainer: str, to: Format) -> None:
    model, side = loaded(trainer), PICTURES[trainer]
    done = export(model, to=to, path=tmp_path / "it")
    files = [tmp_path / f"{number}.png" for number in range(5)]
    for number, file in enumerate(files):
        values = np.random.default_rng(number).integers(256, size=(side, side, 3)).astype(np.uint8)
        Image.fromarray(values[:, :, 0] if trainer == "image-classification" else values).save(file)
    pixels = np.stack([np.asarray(Image.open(file), dtype=np.float32) / 255 for file in files])
    pixels = pixels[:, None] if pixels.ndim == 3 else pixels.transpose(0, 3, 1, 2)
    logits = _run(done, {"pixels": pixels})
    predicted = model.predict(files)
    if trainer == "segmentation":
        masks = logits[:, 0].sigmoid() > done.card["outputs"]["logits"]["threshold"]
        assert [mask.mean(dtype=torch.float64).item() for mask in masks.double()] == [
            pytest.approx(each.share["foreground"], abs=1e-9) for each in predicted
        ]
    else:
        found = logits.softmax(1).tolist()
        assert found == [pytest.approx([*each.probabilities.values()], abs=1e-5) for each in predicted]
    assert done.difference < 1e-5


@pytest.mark.thorough
def test_masks_of_several_classes_are_the_largest_logits(tmp_path: Path) -> None:
    state = {**walls(), "classes": ["background", "wall", "sky"], "outputs": 3}
    state["model"] = unet.build("unet_small", outputs=3).state_dict()
    torch.save(state, tmp_path / "best.pt")
    model = load(tmp_path / "best.pt", device="cpu")
    done = export(model, to="torch-export", path=tmp_path / "it.pt2")
    assert done.card["outputs"]["logits"] == {"shape": ["batch", 3, 32, 32], "probability": "softmax of dimension 1"}
    picture = np.random.default_rng(0).random((3, 32, 32), dtype=np.float32)
    found = _run(done, {"pixels": picture[None]}).argmax(1)[0].numpy()
    assert (found == model.predict(picture).mask).mean() > 0.999


@pytest.mark.thorough
@pytest.mark.parametrize("to", GRAPHS)
def test_a_graph_takes_the_tokens_of_texts(loaded: Loaded, tmp_path: Path, to: Format) -> None:
    model = loaded("text-classification")
    assert isinstance(model, TextClassifier)
    done = export(model, to=to, path=tmp_path / "it")
    if to == "onnx":
        _check_names(done.path, done.card, model.tokenizer.content)
    ids, mask = (model.prepare(TEXTS)[name].numpy() for name in ("input_ids", "attention_mask"))
    logits = _run(done, {"input_ids": ids, "attention_mask": mask.astype(np.int64)})
    predicted = model.predict(TEXTS)
    assert logits.softmax(1).tolist() == [pytest.approx([*each.probabilities.values()], abs=1e-5) for each in predicted]
    assert done.card["inputs"]["input_ids"] == {
        "type": "int64",
        "shape": ["batch", "length"],
        "tokenizer": "tokenizer.json",
        "padding": 1,
    }


def test_a_program_says_what_it_takes_and_gives(loaded: Loaded, tmp_path: Path) -> None:
    model = loaded("image-classification")
    done = export(model, to="torch-export", path=tmp_path / "it.pt2")
    texts = {"torchyard": ""}
    torch.export.load(tmp_path / "it.pt2", extra_files=texts)
    card = json.loads(texts["torchyard"])
    assert card == done.card
    assert card["classes"] == [str(digit) for digit in range(10)]
    assert card["inputs"] == {
        "pixels": {
            "type": "float32",
            "shape": ["batch", 1, 8, 8],
            "range": [0, 1],
            "colours": "grey",
            "normalization": "in the graph",
        }
    }
    assert card["outputs"] == {"logits": {"shape": ["batch", 10], "probability": "softmax of dimension 1"}}
    assert card["preprocessing"]["normalization"] == model.metadata["normalization"]


@pytest.mark.parametrize("trainer", RECIPES)
def test_safetensors_is_loaded_as_the_checkpoint_is(loaded: Loaded, tmp_path: Path, trainer: str) -> None:
    model = loaded(trainer)
    assert export(model, to="safetensors", path=tmp_path / "it.safetensors").difference == 0
    again = load(tmp_path / "it.safetensors", device="cpu")
    assert (type(again), again.card) == (type(model), model.card)
    assert again.metadata == {**model.metadata, "format": 1}
    assert export(again, to="safetensors", path=tmp_path / "again.safetensors").difference == 0
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "it.safetensors").read_bytes()


def test_transformers_loads_the_folder_of_a_model_of_texts(loaded: Loaded, tmp_path: Path) -> None:
    from transformers.pipelines import pipeline

    model = loaded("text-classification")
    export(model, to="hf", path=tmp_path / "it")
    classify = pipeline("text-classification", model=str(tmp_path / "it"), device="cpu")
    found = classify(TEXTS, truncation=True)
    assert [(each["label"], each["score"]) for each in found] == [
        (each.label, pytest.approx(each.probability, abs=1e-5)) for each in model.predict(TEXTS)
    ]
    assert json.loads((tmp_path / "it" / "config.json").read_text())["label2id"] == {"bad": 0, "good": 1}


@pytest.mark.parametrize("trainer", PICTURES)
def test_transformers_takes_no_model_of_pictures(
    loaded: Loaded, tmp_path: Path, trainer: str, approved: Approved
) -> None:
    with pytest.raises(ExportError) as raised:
        export(loaded(trainer), to="hf", path=tmp_path / "it")
    assert str(raised.value) == approved("message", trainer=trainer)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("to", ["safetensors", "hf"])
def test_what_computes_something_else_is_not_left(
    loaded: Loaded, tmp_path: Path, to: Format, monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    """A model of other weights is written in place of the one that was asked for."""
    model = loaded("text-classification")
    kind = {"safetensors": weights, "hf": folders}[to]
    opened = kind.opened

    def other(path: Path) -> Run:
        run = opened(path)

        def scaled(trial: Trial) -> torch.Tensor:
            return run(trial) * 1.01

        return scaled

    monkeypatch.setattr(kind, "opened", other)
    with pytest.raises(ExportError) as raised:
        export(model, to=to, path=tmp_path / "it.safetensors")
    assert str(raised.value) == approved("message")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.thorough
def test_what_cannot_be_read_again_is_not_left(loaded: Loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def torn(*_: object) -> bytes:
        return b"torn"

    monkeypatch.setattr(onnxfiles, "content", torn)
    with pytest.raises(ExportError, match=r"^what was written cannot be read again: [^\n]+$"):
        export(loaded("image-classification"), to="onnx", path=tmp_path / "it")
    assert [*tmp_path.iterdir()] == []


def test_a_format_is_refused_before_any_work(
    loaded: Loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    model = loaded("image-classification")
    with pytest.raises(ExportError) as raised:
        export(model, to="tflite", path=tmp_path / "it")  # pyright: ignore[reportArgumentType]
    assert str(raised.value) == approved("message")
    monkeypatch.setattr(onnxfiles, "PACKAGES", ("onnx", "absent_one", "absent_two"))
    with pytest.raises(ExportError) as raised:
        export(model, to="onnx", path=tmp_path / "it")
    assert str(raised.value) == approved("onnx needs absent")
    with pytest.raises(ExportError) as raised:
        export(model, to="safetensors", path=tmp_path / "it.bin")
    assert str(raised.value) == approved("must end safetensors", tmp_path=tmp_path)


def _check_names(path: Path, card: dict[str, Any], tokenizer: str) -> None:
    """The file names its inputs, outputs and dimensions, and has the card and the tokenizer."""
    import onnx

    model = onnx.load(path)
    onnx.checker.check_model(model)
    named = {
        value.name: [one.dim_param or one.dim_value for one in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    }
    both = ["batch", "length"]
    assert named == {"input_ids": both, "attention_mask": both, "logits": ["batch", 2]}
    texts = {item.key: item.value for item in model.metadata_props}
    assert (json.loads(texts["torchyard"]), texts["tokenizer.json"]) == (card, tokenizer)


def _run(done: Exported, inputs: dict[str, Any]) -> torch.Tensor:
    """Runs what was exported with the libraries of its format alone."""
    if done.to == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(done.path, providers=["CPUExecutionProvider"])
        return torch.from_numpy(session.run(["logits"], inputs)[0])
    program = torch.export.load(done.path)
    return program.module()(*map(torch.from_numpy, inputs.values()))
