"""The trainer on the simulated device: every strategy in every number format, and every recipe, on two ranks."""

from collections.abc import Mapping
from itertools import product
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.device import sim
from tests.device.runs import train
from tests.trainer.recipes.test_text import source
from tests.trainer.runs import points, same, small_pictures, state
from tests.trainer.shapes import CLASSES, shapes
from tests.trainer.walls import walls
from trainer.train import Training

SIZES: dict[str, Any] = {"epochs": 1, "max_steps": 12, "per_device_batch_size": 8}
STRATEGIES: dict[str, dict[str, Any]] = {
    "ddp": {},
    "fsdp": {"strategy": "fsdp"},
    "local_sgd": {"strategy": "local_sgd", "local_sgd": {"warmup_steps": 3, "period": 4}},
    "powersgd": {"comm_hook": "powersgd"},
}
TECHNIQUES: dict[str, dict[str, Any]] = {
    "plain": {},
    "ema": {"ema": {"decay": 0.9}},
    "ema in host memory": {"ema": {"decay": 0.9, "device": "cpu"}},
    "lookahead": {"optimizer": {"lookahead": {"every_steps": 4}}},
    "accumulation": {"training": {"gradient_accumulation_steps": 3}},
}
FORMATS = ("fp32", "bf16", "fp16")
ADMITTED = [
    (strategy, precision)
    for strategy, precision in product(STRATEGIES, FORMATS)
    if precision != "fp16" or strategy in {"ddp", "powersgd"}
]
QUICK = {("ddp", "fp16")}
"""The others are slow."""
POWERSGD_STARTS = 11
"""The step in which PowerSGD draws its first matrices, on the host."""


def config(strategy: str, precision: str, technique: str = "plain", **training: Any) -> dict[str, Any]:
    sections = TECHNIQUES[technique]
    options = {**SIZES, "precision": precision, **sections.get("training", {}), **training}
    return {
        **sections,
        "training": options,
        "distributed": STRATEGIES[strategy],
        "logging": {"every_steps": 4},
    }


def watch_log_lines(training: Training) -> None:
    """Makes a log line that waits for the device an error, and one that is not written by the next."""
    log, written = training.report.log, training.run.log
    begun: list[int] = []
    seen: list[int] = []

    def watched(step: int, **named: Any) -> None:
        before = sim.host_waits()
        log(step, **named)
        assert sim.host_waits() == before
        assert seen == begun
        begun.append(step)

    def note(values: Mapping[str, Any], *, step: int) -> None:
        if "train/loss" in values:
            assert all(math.isfinite(value) for value in values.values())
            seen.append(step)
        written(values, step=step)

    training.report.log, training.run.log = watched, note


@pytest.mark.parametrize(
    ("strategy", "precision"),
    [each if each in QUICK else pytest.param(*each, marks=pytest.mark.thorough) for each in ADMITTED],
)
def test_ranks_on_a_device_learn_the_same_weights_and_never_wait(
    tmp_path: Path, library: Path, strategy: str, precision: str
) -> None:
    wanted = config(strategy, precision, gradient_accumulation_steps=2)
    data = small_pictures(tmp_path, train=12 * 32, val=20)
    run, outcomes = train(tmp_path / "run", library, wanted, data=data, change=watch_log_lines)
    assert [step for step, _ in points(run, "train/loss")] == [4, 8, 12]
    losses = [loss for _, loss in points(run, "train/loss")]
    assert losses[-1] < losses[0] < 3
    assert [len(points(run, key)) for key in ("train/accuracy", "memory_gib/rank1")] == [3, 3]
    assert len(points(run, "wait/slowest_rank")) == (0 if strategy == "fsdp" else 3)
    one, other = outcomes
    assert one.weights == other.weights
    assert all(math.isfinite(value) for values in one.weights.values() for value in values)
    # For the weights, the optimizer's state, the strategy's, and the two numbers of fp16: never for each tensor.
    assert all(waits <= 5 for outcome in outcomes for waits in outcome.waits_to_save)
    for outcome in outcomes:
        # The first step copies the data, and PowerSGD draws matrices once.
        watched = [waits for step, waits in enumerate(outcome.waits, start=1) if step not in {1, POWERSGD_STARTS}]
        assert watched == [0] * len(watched)
        assert outcome.peaks[outcome.device] > 2**20
        assert outcome.peaks[1 - outcome.device] == 0


AVERAGED: dict[str, Any] = {"optimizer": {"lookahead": {"every_steps": 4}, "clip_grad_norm": 1.0}}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("precision", "place"),
    [
        ("fp16", "cpu"),
        ("bf16", "model"),
        ("fp32", "cpu"),
    ],
)
def test_averages_on_a_device_and_in_host_memory_never_wait(
    tmp_path: Path, library: Path, precision: str, place: str
) -> None:
    wanted = {**config("ddp", precision), **AVERAGED, "ema": {"decay": 0.9, "ramp": 2, "device": place}}
    run, outcomes = train(tmp_path, library, wanted)
    for outcome in outcomes:
        # The thread that updates an average in host memory waits for each copy: the step does not.
        assert sum(outcome.waits[1:]) <= (12 if place == "cpu" else 0)
    (name,) = (folder.name for folder in run.checkpoints.iterdir())
    saved = state(run, name)
    assert all(bool(tensor.isfinite().all()) for tensor in saved["model"].values())
    assert not any(torch.equal(saved["model"][key], saved["raw"][key]) for key in saved["model"] if "weight" in key)


RESUMED = [
    (*combination, technique)
    for combination, technique in product(ADMITTED, TECHNIQUES)
    if technique != "plain" and (combination[0], technique) != ("fsdp", "ema in host memory")
]


@pytest.mark.thorough
@pytest.mark.parametrize(("strategy", "precision", "technique"), RESUMED)
def test_a_resumed_run_on_a_device_ends_bit_equal(
    tmp_path: Path, library: Path, strategy: str, precision: str, technique: str
) -> None:
    data = small_pictures(tmp_path)
    wanted = config(strategy, precision, technique, epochs=2, max_steps=None, per_device_batch_size=8)
    whole, _ = train(tmp_path / "whole", library, wanted, data=data)
    begun = whole.checkpoints / "epoch-0001"
    resumed, outcomes = train(tmp_path / "resumed", library, wanted, data=data, resume_from=begun)
    assert same(state(resumed, "epoch-0002"), state(whole, "epoch-0002"))
    assert outcomes[0].weights == outcomes[1].weights


@pytest.mark.thorough
def test_segmentation_trains_on_a_device(tmp_path: Path, library: Path) -> None:
    wanted = {
        "data": {"source": "file:///x", "image_size": 32, "workers": 0},
        "model": {"name": "unet_resnet34"},
        "training": {"epochs": 1, "max_steps": 2, "per_device_batch_size": 2, "precision": "bf16"},
        "distributed": {"sync_batchnorm": True},
    }
    data = str(walls(tmp_path / "walls", count=16))
    _, outcomes = train(tmp_path / "run", library, wanted, data=data, trainer="segmentation")
    assert outcomes[0].weights == outcomes[1].weights


@pytest.mark.thorough
def test_several_classes_train_on_a_device(tmp_path: Path, library: Path) -> None:
    wanted = {
        "data": {"source": "file:///x", "image_size": 32, "workers": 0, "classes": CLASSES},
        "loss": {"class_weights": "auto", "dice": 1.0},
        "training": {"epochs": 1, "max_steps": 3, "per_device_batch_size": 2, "precision": "bf16"},
        "distributed": {"sync_batchnorm": True},
    }
    data = str(shapes(tmp_path / "shapes", ignored=True))
    _, outcomes = train(tmp_path / "run", library, wanted, data=data, trainer="segmentation")
    assert outcomes[0].weights == outcomes[1].weights


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_texts_train_on_a_device(tmp_path: Path, library: Path, strategy: str) -> None:
    wanted = {
        "data": {"source": "file:///x", "vocabulary": 300, "max_length": 16},
        "training": {"epochs": 1, "max_steps": 3, "per_device_batch_size": 4, "precision": "bf16"},
        "distributed": STRATEGIES[strategy],
    }
    data = str(source(tmp_path / "texts"))
    _, outcomes = train(tmp_path / "run", library, wanted, data=data, trainer="text-classification")
    assert outcomes[0].weights == outcomes[1].weights
