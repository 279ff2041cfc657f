"""Evaluating a checkpoint from its state alone."""

import io
import json
from pathlib import Path
import sys
from typing import Any

import numpy as np
from PIL import Image
import pytest
import torch

from tests.approved import Approved
from tests.trainer.runs import small_pictures
from torchyard.contract.errors import DataError
from torchyard.contract.recipes import REGISTRY
from trainer import evaluate as program
from trainer.evaluate import evaluate
from trainer.recipes import make_task
from trainer.task import Task

CPU = torch.device("cpu")


def pictures(folder: Path) -> dict[str, Any]:
    return {"data": {"source": f"file://{small_pictures(folder)}"}}


def pairs(folder: Path) -> dict[str, Any]:
    for kind, high in (("images", 256), ("masks", 2)):
        (folder / kind).mkdir()
        for number in range(5):
            values = np.random.default_rng(number).integers(high, size=(32, 32)) * (255 if high == 2 else 1)
            Image.fromarray(values.astype(np.uint8)).save(folder / kind / f"{number}.png")
    return {"data": {"source": folder.as_uri(), "image_size": 32, "val_fraction": 0.4, "workers": 0}}


def texts(folder: Path) -> dict[str, Any]:
    for name, word in (("good", "fine"), ("bad", "dull")):
        (folder / f"{name}.txt").write_text("".join(f"a {word} film, number {number}\n" for number in range(20)))
    return {"data": {"source": folder.as_uri(), "vocabulary": 300, "val_fraction": 0.2}}


RECIPES = {"image-classification": pictures, "segmentation": pairs, "text-classification": texts}


def checkpoint(folder: Path, trainer: str, raw: dict[str, Any]) -> tuple[Path, Task]:
    """Saves the part of a checkpoint that evaluation reads. Returns its path and its task."""
    config = REGISTRY[trainer].config.model_validate(raw)
    torch.manual_seed(3)
    task = make_task(config, source=config.data.source, weights="none", device=CPU)
    state = {
        "recipe": trainer,
        "config": config.model_dump(mode="json"),
        "model": task.model.state_dict(),
        "threads": torch.get_num_threads(),
        **task.metadata,
    }
    torch.save(state, folder / "state.pt")
    return folder / "state.pt", task


@pytest.mark.parametrize("trainer", RECIPES)
def test_a_checkpoint_reaches_its_tasks_metrics(tmp_path: Path, trainer: str) -> None:
    (tmp_path / "data").mkdir()
    path, task = checkpoint(tmp_path, trainer, RECIPES[trainer](tmp_path / "data"))
    expected = task.evaluate(None, on_batch=lambda: None)
    found = evaluate(path, device="cpu")
    assert found.pop("samples") == expected.samples > 0
    assert {f"val/{key}": value for key, value in found.items()} == expected.metrics


def test_the_program_prints_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], approved: Approved
) -> None:
    path, _ = checkpoint(tmp_path, "image-classification", pictures(tmp_path))
    monkeypatch.setattr(sys, "argv", ["trainer.evaluate", str(path), "--device", "cpu"])
    program.main()
    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == {"loss", "accuracy", "accuracy_top5", "samples"}
    monkeypatch.setattr(sys, "argv", ["trainer.evaluate", "-", "--device", "cpu"])
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{path}\n"))
    program.main()
    assert json.loads(capsys.readouterr().out) == answer
    monkeypatch.setattr(sys, "argv", ["trainer.evaluate", str(tmp_path / "absent.pt")])
    with pytest.raises(SystemExit) as raised:
        program.main()
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


def test_other_data_with_the_same_classes_may_be_evaluated(tmp_path: Path, approved: Approved) -> None:
    path, _ = checkpoint(tmp_path, "image-classification", pictures(tmp_path))
    assert evaluate(path, source="digits", device="cpu")["samples"] == 269
    (tmp_path / "cat").mkdir()
    (tmp_path / "dog").mkdir()
    for name in ("cat", "dog"):
        for number in range(2):
            Image.new("L", (8, 8), number).save(tmp_path / name / f"{number}.png")
    with pytest.raises(DataError) as raised:
        evaluate(path, source=str(tmp_path), device="cpu")
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"recipe": "juggling"}, DataError),
        ({"recipe": "script"}, DataError),
        ({"config": {"model": {"nome": "x"}}}, DataError),
        ({"model": {"weight": torch.zeros(1)}}, DataError),
        ({"model": None}, DataError),
    ],
)
def test_a_checkpoint_that_cannot_be_used_is_an_error(
    tmp_path: Path, change: dict[str, Any], error: type[Exception], approved: Approved
) -> None:
    path, _ = checkpoint(tmp_path, "image-classification", pictures(tmp_path))
    state = {**torch.load(path, weights_only=True), **change}
    torch.save({key: value for key, value in state.items() if value is not None}, path)
    with pytest.raises(error) as raised:
        evaluate(path, device="cpu")
    assert str(raised.value) == approved.of_row("message", tmp_path=tmp_path)
