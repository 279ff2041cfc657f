"""Runs with models of timm and transformers: several ranks, FSDP, resume, weights of a folder, and predictions."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests import forks
from tests.approved import Approved
from tests.trainer.ranks import environment, job, on_ranks, results
from tests.trainer.recipes.test_text import source
from tests.trainer.runs import same, small_pictures, state
import torchyard
from torchyard.contract.errors import DataError
from torchyard.contract.recipes import ImageClassification
from trainer.__main__ import main
from trainer.evaluate import evaluate
from trainer.recipes import make_task

forks.preload("timm", "transformers.models.distilbert.modeling_distilbert")
CPU = torch.device("cpu")
VIT = {
    "name": "hf/vit",
    "options": {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "patch_size": 8,
    },
}
DISTILBERT = {
    "name": "hf/distilbert",
    "options": {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_dim": 32},
}


def settings(model: dict[str, Any], **sections: dict[str, Any]) -> dict[str, Any]:
    training = {"epochs": 1, "per_device_batch_size": 40, "deterministic": True, "channels_last": True}
    data, evaluation = {"source": "digits", "image_size": 32}, {"remeasure_best": False}
    return {"model": model, "data": data, "training": training, "evaluation": evaluation, **sections}


def measured(metrics: dict[str, float]) -> dict[str, float]:
    return {key: value for key, value in metrics.items() if key.startswith("val/")}


def test_a_model_of_timm_trains_on_two_ranks_and_predicts_what_was_measured(tmp_path: Path) -> None:
    data = small_pictures(tmp_path, train=80, val=20)
    model = {"name": "timm/test_resnet", "freeze": ["conv1"]}
    run = job(tmp_path / "run", settings(model, distributed={"sync_batchnorm": True}))
    results(on_ranks(2, main, env=environment(run, data=data)))
    _predicts(run.checkpoints / "epoch-0001" / "state.pt", data, measured(state(run, "epoch-0001")["metrics"]))


@pytest.mark.thorough
def test_a_vision_transformer_is_sharded_by_fsdp_and_predicts_what_was_measured(tmp_path: Path) -> None:
    data = small_pictures(tmp_path, train=120, val=40)
    run = job(tmp_path / "run", settings(VIT, distributed={"strategy": "fsdp"}))
    results(on_ranks(2, main, env=environment(run, data=data)))
    _predicts(run.checkpoints / "epoch-0001" / "state.pt", data, measured(state(run, "epoch-0001")["metrics"]))


@pytest.mark.thorough
@pytest.mark.parametrize("model", [{"name": "timm/test_vit"}, VIT])
def test_a_model_of_a_library_resumes_bit_equal(tmp_path: Path, model: dict[str, Any]) -> None:
    data = small_pictures(tmp_path, train=120, val=40)
    wanted = settings(model)
    wanted["training"]["epochs"] = 2
    runs = [job(tmp_path / name, wanted) for name in ("one", "two")]
    results(on_ranks(2, main, env=environment(runs[0], data=data)))
    before = runs[0].checkpoints / "epoch-0001"
    results(on_ranks(2, main, env=environment(runs[1], data=data, resume_from=before)))
    assert same(*(state(run, "epoch-0002")["model"] for run in runs))


def _predicts(checkpoint: Path, data: str, metrics: dict[str, float]) -> None:
    """Compares the metrics of a run with an evaluation of its checkpoint, and with the predictions of the file."""
    found = evaluate(checkpoint, source=data, device="cpu")
    assert {f"val/{key}": value for key, value in found.items() if key != "samples"} == pytest.approx(metrics, rel=1e-4)
    arrays = np.load(data)
    model = torchyard.load(checkpoint, device="cpu")
    labels = [int(prediction.label) for prediction in model.predict(list(arrays["x_test"]))]
    assert (np.array(labels) == arrays["y_test"]).mean() == pytest.approx(metrics["val/accuracy"])


def test_weights_come_from_a_folder_as_transformers_saves_it(tmp_path: Path, approved: Approved) -> None:
    wanted = ImageClassification.model_validate(settings(VIT))
    saved = make_task(wanted, source="digits", device=CPU).model
    saved.save_pretrained(tmp_path / "vit")  # pyright: ignore[reportCallIssue] it is a model of transformers
    torch.manual_seed(1)
    task = make_task(wanted, source="digits", weights=str(tmp_path / "vit"), device=CPU)
    assert same(dict(task.model.state_dict()), dict(saved.state_dict()))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError) as raised:
        make_task(wanted, source="digits", weights=str(tmp_path / "empty"), device=CPU)
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


def test_an_encoder_of_another_type_trains_and_predicts_what_was_measured(tmp_path: Path) -> None:
    folder = source(tmp_path / "texts")
    sections = {
        "model": DISTILBERT,
        "data": {"source": "file:///x", "vocabulary": 300, "max_length": 16},
        "training": {"epochs": 1, "per_device_batch_size": 8},
        "evaluation": {"remeasure_best": False},
    }
    run = job(tmp_path / "run", sections, trainer="text-classification")
    results(on_ranks(1, main, env=environment(run, data=str(folder))))
    checkpoint = run.checkpoints / "epoch-0001" / "state.pt"
    found = evaluate(checkpoint, source=str(folder), device="cpu")
    metrics = measured(state(run, "epoch-0001")["metrics"])
    assert found["loss"] == pytest.approx(metrics["val/loss"], rel=1e-5)
    model = torchyard.load(checkpoint, device="cpu")
    assert model.predict("some words").label in state(run, "epoch-0001")["classes"]
