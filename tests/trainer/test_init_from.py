"""Runs that start from another run's checkpoint, and `mode: evaluate`, which measures one."""

from collections.abc import Callable
import json
import os
from pathlib import Path
import pickle
import shutil
import signal
from typing import Any

import numpy as np
import pytest
import torch

from tests.approved import Approved
from tests.trainer.ranks import environment, job, on_ranks, results
from tests.trainer.runs import lines, load, points, small_pictures
from tests.trainer.test_recipes import pairs, texts
from torchyard.contract.attempts.events import CheckpointSaved, Message, Shown
from torchyard.contract.attempts.rundir import STATE_FILE, RunDir
from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.recipes import REGISTRY
from torchyard.run import Run
from trainer import __main__ as trainer
from trainer import evaluation_job, stopping
from trainer.data.digits import read_digits
from trainer.evaluate import evaluate
from trainer.train import Training
from trainer.weights.starting import read_initial

TRAINING = {"training": {"epochs": 1, "per_device_batch_size": 16}, "evaluation": {"remeasure_best": False}}
NOBODY = f"job_{'0' * 32}"


def train() -> bool:
    trainer.main()
    return True


def run_job(
    root: Path,
    source: str,
    config: dict[str, Any],
    *,
    recipe: str = "image-classification",
    init_from: Path | None = None,
    ranks: int = 1,
    **spec: Any,
) -> RunDir:
    named = {} if init_from is None else {"init_from": f"{NOBODY}/best"}
    config = {**TRAINING, **config, "data": {"source": f"file://{source}", **config.get("data", {})}}
    run = job(root, config, trainer=recipe, **spec, **named)
    results(on_ranks(ranks, train, env=environment(run, data=source, init_from=init_from)))
    return run


def messages(run: RunDir) -> list[str]:
    return [line.text for line in lines(run) if isinstance(line, Message)]


def said(run: RunDir) -> str:
    (found,) = [text for text in messages(run) if "start from the checkpoint" in text]
    return found


def pictures_of(folder: Path, *digits: int) -> str:
    """Writes pictures of these digits alone, so that there are other classes. Returns their path."""
    pictures, labels = read_digits()
    chosen = np.flatnonzero(np.isin(labels, digits))[:60]
    images, targets = (pictures.reshape(-1, 8, 8)[chosen] * 15).astype(np.uint8), labels[chosen]
    np.savez(folder / "some.npz", x_train=images[:40], y_train=targets[:40], x_test=images[40:], y_test=targets[40:])
    return str(folder / "some.npz")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_pictures(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, source: str) -> Path:
    """The checkpoint of a training with an average, whose `model` is not what it has trained."""
    run = run_job(tmp_path_factory.mktemp("saved"), source, {"ema": {"decay": 0.9, "ramp": 0}})
    return run.checkpoints / "epoch-0001"


def test_a_run_starts_from_the_weights_to_use_and_from_their_normalization(
    tmp_path: Path, source: str, saved: Path, approved: Approved
) -> None:
    run = job(tmp_path, {**TRAINING, "data": {"source": f"file://{source}"}}, init_from=f"{NOBODY}/best")
    (outcome,) = on_ranks(1, _begin, env=environment(run, data=source, init_from=saved))
    before = load(saved)
    assert outcome["weights"].keys() == before["model"].keys()
    for name, value in before["model"].items():
        assert torch.equal(torch.from_numpy(outcome["weights"][name]), value), name
    assert outcome["normalization"] == before["normalization"]
    assert said(run) == approved("said", parameters=outcome["parameters"])


def _begin() -> dict[str, Any]:
    found: dict[str, Any] = {}

    def note(self: Training) -> bool:
        task = self.task
        found["weights"] = {name: value.numpy() for name, value in task.model.state_dict().items()}
        found["normalization"] = task.metadata["normalization"]
        found["parameters"] = len(list(task.model.parameters()))
        return True

    Training.train = note
    trainer.main()
    return found


def test_other_classes_get_a_new_head_and_are_named(tmp_path: Path, saved: Path, approved: Approved) -> None:
    run = run_job(tmp_path, pictures_of(tmp_path, 3, 8, 9), {}, init_from=saved)
    text = said(run)
    assert "new: " in text
    assert "left out: " in text
    assert text == approved("text")
    assert load(run.checkpoints / "epoch-0001")["classes"] == ["3", "8", "9"]


def test_as_many_classes_of_other_names_get_a_new_head_too(
    tmp_path: Path, source: str, saved: Path, approved: Approved
) -> None:
    folder = tmp_path / "forged"
    shutil.copytree(saved, folder)
    state = torch.load(folder / STATE_FILE, weights_only=True)
    state["classes"] = state["classes"][::-1]
    torch.save(state, folder / STATE_FILE)
    text = said(run_job(tmp_path / "run", source, {}, init_from=folder))
    assert text == approved("text")
    assert text.count(".weight") == 2, "the head alone is new, and left out"


def test_a_model_that_nothing_fits_is_refused(tmp_path: Path, source: str, saved: Path, approved: Approved) -> None:
    with pytest.raises(ConfigError) as raised:
        config = {"model": {"name": "squeezenet1_1"}, "data": {"image_size": 32}}
        run_job(tmp_path, source, config, init_from=saved)
    assert str(raised.value) == approved("message")


def test_a_file_that_is_no_checkpoint_of_the_recipe_is_refused(tmp_path: Path, saved: Path) -> None:
    folder = tmp_path / "forged"
    folder.mkdir()
    run = job(tmp_path / "run", {}, init_from=f"{NOBODY}/best")
    env = environment(run, data="digits", init_from=folder)
    for content in (b"", b"PK\x03\x04 torn", pickle.dumps(print), json.dumps({"model": {}}).encode()):
        (folder / STATE_FILE).write_bytes(content)
        with pytest.raises(DataError, match=r"^init_from: "):
            read_initial(Run(env))
    torch.save({**load(saved), "recipe": "segmentation"}, folder / STATE_FILE)
    with pytest.raises(ConfigError, match="is of segmentation"):
        read_initial(Run(env))


RECIPES: dict[str, tuple[Callable[[Path], None], dict[str, Any]]] = {
    "segmentation": (pairs, {"image_size": 32, "workers": 0}),
    "text-classification": (texts, {"vocabulary": 300, "val_fraction": 0.2}),
}


@pytest.mark.thorough  # pictures do above and below, and language models in recipes/test_causal_runs.py
@pytest.mark.parametrize("recipe", RECIPES)
def test_each_recipe_starts_from_a_checkpoint_and_measures_one(tmp_path: Path, recipe: str) -> None:
    make, data = RECIPES[recipe]
    make(tmp_path / "data")
    source = str(tmp_path / "data")
    first = run_job(tmp_path / "1", source, {"data": data}, recipe=recipe).checkpoints / "epoch-0001"
    second = run_job(tmp_path / "2", source, {"data": data}, recipe=recipe, init_from=first)
    assert "new" not in said(second)
    measured = run_job(tmp_path / "3", source, {"data": data}, recipe=recipe, init_from=first, mode="evaluate")
    _assert_measured(measured, first)


@pytest.mark.thorough
def test_a_text_model_takes_the_tokenizer_of_its_weights(tmp_path: Path) -> None:
    texts(tmp_path / "data")
    (tmp_path / "other").mkdir()
    for name in ("news", "sport", "weather"):
        (tmp_path / "other" / f"{name}.txt").write_text("".join(f"quite another {name} {n}\n" for n in range(12)))
    config = {"data": {"vocabulary": 300, "val_fraction": 0.2}}
    recipe = "text-classification"
    first = run_job(tmp_path / "1", str(tmp_path / "data"), config, recipe=recipe).checkpoints / "epoch-0001"
    second = run_job(tmp_path / "2", str(tmp_path / "other"), config, recipe=recipe, init_from=first)
    assert load(second.checkpoints / "epoch-0001")["tokenizer"] == load(first)["tokenizer"]
    assert "others, bad, good: the head is new" in said(second)


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.thorough), 2])
def test_an_evaluation_measures_what_the_program_measures(tmp_path: Path, source: str, saved: Path, ranks: int) -> None:
    config = {"training": {"per_device_batch_size": 8}, "model": {"name": "resnet18"}}
    run = run_job(tmp_path, source, config, init_from=saved, ranks=ranks, mode="evaluate")
    _assert_measured(run, saved)
    matrix = json.loads((run.artifacts / "confusion.json").read_text())["matrix"]
    assert sum(map(sum, matrix)) == 67


def _assert_measured(run: RunDir, saved: Path) -> None:
    """The run has logged the metrics of the checkpoint at its step, and saved nothing."""
    expected = evaluate(saved / STATE_FILE, device="cpu")
    step = load(saved)["step"]
    for key in expected.keys() - {"samples"}:
        ((at, value),) = points(run, f"val/{key}")
        assert (at, value) == (step, pytest.approx(expected[key], rel=1e-6)), key
    assert [line for line in lines(run) if isinstance(line, CheckpointSaved)] == []
    assert any(isinstance(line, Shown) for line in lines(run))


def test_an_evaluation_refuses_data_with_other_classes(tmp_path: Path, saved: Path) -> None:
    with pytest.raises(DataError, match="the classes of"):
        run_job(tmp_path, pictures_of(tmp_path, 1, 2), {}, init_from=saved, mode="evaluate")


def test_a_stopped_evaluation_keeps_nothing(tmp_path: Path, source: str, saved: Path) -> None:
    config = {"training": {"per_device_batch_size": 1}, "data": {"source": f"file://{source}"}}
    run = job(tmp_path, config, init_from=f"{NOBODY}/best", mode="evaluate")
    (outcome,) = on_ranks(1, _stopped, env=environment(run, data=source, init_from=saved))
    assert outcome == stopping.STOP_CHECK_BATCHES
    assert points(run, "val/loss") == []
    assert list(run.artifacts.iterdir()) == []


def _stopped() -> int:
    """Is told to stop during the evaluation. Returns how many batches it has measured."""
    measured = 0
    real = evaluation_job.StopCheck.__call__

    def stop(self: stopping.StopCheck) -> None:
        nonlocal measured
        measured += 1
        if measured == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        real(self)

    stopping.StopCheck.__call__ = stop
    trainer.main()
    return measured


def test_what_of_the_data_is_the_jobs_is_known_for_each_key() -> None:
    """A key is the job's if it says which data is read; one that says how it is read is the checkpoint's."""
    how = {
        "image_size",
        "normalize",
        "augment",
        "group_by_length",
        "mask_threshold",
        "classes",
        "palette",
        "ignore_index",
    }
    how |= {"max_length", "vocabulary", "resize", "packing", "too_long"}
    for recipe in REGISTRY.values():
        keys = set(recipe.config.model_fields["data"].annotation.model_fields)  # pyright: ignore
        assert keys <= how | set(evaluation_job.OF_THE_JOB), recipe.name
