"""Runs of a recipe on real ranks: learning, stopping, resuming, failing, and the files they write."""

from collections.abc import Callable
import hashlib
import math
import os
from pathlib import Path
import signal
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from tests.approved import Approved
from tests.trainer.ranks import environment, job, on_ranks, results
from tests.trainer.runs import TIMED, lines, points, same, small_pictures, state
import torchyard
from torchyard.contract.attempts.events import CheckpointSaved, Message, Progress
from torchyard.contract.attempts.records import Manifest
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.errors import ConfigError, DataError, NonFiniteLoss
from torchyard.host.recordfiles import read_record
from trainer import __main__ as trainer
from trainer.evaluate import evaluate

CONFIG: dict[str, Any] = {
    "training": {"epochs": 2, "per_device_batch_size": 8, "deterministic": True},
    "lr_scheduler": {"warmup_steps": 3},
    "logging": {"every_steps": 4},
    "evaluation": {"remeasure_best": False},
}


def train(stop_at: int | None = None) -> bool:
    """Runs the trainer's main. Rank N gets SIGTERM N steps after step `stop_at`. Returns whether the run completed."""
    run = torchyard.init()
    steps = 0

    def should_stop(ask: Callable[[], bool] = run.should_stop) -> bool:
        nonlocal steps
        steps += 1
        if steps - run.rank == stop_at:
            os.kill(os.getpid(), signal.SIGTERM)
        return ask()

    run.should_stop = should_stop
    try:
        trainer.main()
    finally:
        run.close()
    return True


def launch(
    root: Path, config: dict[str, Any], *, data: str, ranks: int = 2, resume_from: Path | None = None, **options: Any
) -> RunDir:
    run = job(root, config)
    results(on_ranks(ranks, train, options.get("stop_at"), env=environment(run, data=data, resume_from=resume_from)))
    return run


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Writes 150 training pictures: 10 steps an epoch on two ranks with batches of 8."""
    return small_pictures(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, small: str) -> RunDir:
    """An uninterrupted run."""
    return launch(tmp_path_factory.mktemp("whole"), CONFIG, data=small)


def test_a_run_saves_complete_checkpoints_and_reports_what_it_did(whole: RunDir) -> None:
    names = ["epoch-0001", "epoch-0002"]
    assert sorted(path.name for path in whole.checkpoints.iterdir()) == names
    written = lines(whole)
    assert [line.name for line in written if isinstance(line, CheckpointSaved)] == names
    assert [step for step, _ in points(whole, "train/loss")] == [4, 8, 10, 12, 16, 20]
    assert [step for step, _ in points(whole, "val/accuracy")] == [10, 20]
    last = [line for line in written if isinstance(line, Progress)][-1]
    assert (last.step, last.total_steps, last.epoch, last.epochs) == (20, 20, 2, 2)
    for epoch, name in enumerate(names, start=1):
        manifest = read_record(whole.checkpoints / name / "manifest.json", Manifest)
        assert manifest is not None
        assert (manifest.epoch, manifest.step, manifest.end_of_epoch) == (epoch, epoch * 10, True)
        assert [file.path for file in manifest.files] == ["state.pt", "model.safetensors", "confusion.json"]
        for file in manifest.files:
            data = (whole.checkpoints / name / file.path).read_bytes()
            assert (file.size, file.sha256) == (len(data), hashlib.sha256(data).hexdigest())
        saved = state(whole, name)
        assert saved["metrics"] == {key: value for key, value in manifest.metrics.items() if key != TIMED}
        assert manifest.metrics["val/accuracy"] == points(whole, "val/accuracy")[epoch - 1][1]
        assert same(load_file(whole.checkpoints / name / "model.safetensors"), dict(saved["model"]))
        assert len(saved["random"]) == 2


def test_the_best_is_the_lowest_validation_loss(whole: RunDir) -> None:
    losses = points(whole, "val/loss")
    step, value = min(losses, key=lambda point: point[1])
    best = state(whole, "epoch-0002")["best"]
    assert (best["metric"], best["step"], best["value"]) == ("val/loss", step, value)


@pytest.mark.parametrize("stop_at", [3, pytest.param(9, marks=pytest.mark.thorough)])
def test_a_run_stopped_inside_an_epoch_resumes_bit_equal(
    tmp_path: Path, small: str, whole: RunDir, stop_at: int
) -> None:
    stopped = launch(tmp_path / "1", CONFIG, data=small, stop_at=stop_at)
    (name,) = (path.name for path in stopped.checkpoints.iterdir() if path.name.startswith("step"))
    manifest = read_record(stopped.checkpoints / name / "manifest.json", Manifest)
    assert manifest is not None
    assert not manifest.end_of_epoch
    assert stop_at < manifest.step <= stop_at + 4
    resumed = launch(tmp_path / "2", CONFIG, data=small, resume_from=stopped.checkpoints / name)

    ours, theirs = state(resumed, "epoch-0002"), state(whole, "epoch-0002")
    assert same(ours, theirs)
    for key in ("train/loss", "train/accuracy", "train/lr", "val/loss", "val/accuracy"):
        assert points(stopped, key) + points(resumed, key) == points(whole, key)


def test_a_finished_epoch_resumes_on_another_number_of_ranks(tmp_path: Path, small: str, whole: RunDir) -> None:
    resumed = launch(tmp_path, CONFIG, data=small, ranks=1, resume_from=whole.checkpoints / "epoch-0001")
    assert state(resumed, "epoch-0002")["step"] == 10 + 10
    warnings = [line.text for line in lines(resumed) if isinstance(line, Message) and line.level == "warning"]
    assert len(warnings) == 1
    assert "1 processes instead of 2" in warnings[0]
    (again,) = results(on_ranks(1, train, env=environment(resumed, data=small, resume_from=finished(resumed))))
    assert again


def test_rates_by_parts_of_epochs_are_those_of_the_same_step_on_another_number_of_ranks(
    tmp_path: Path, small: str
) -> None:
    scheduler = {"name": "step", "step_epochs": 0.45, "gamma": 0.5, "warmup_epochs": 0.3}
    config = {**CONFIG, "lr_scheduler": scheduler, "logging": {"every_steps": 1}}
    stopped = launch(tmp_path / "1", config, data=small, stop_at=2)
    (saved,) = stopped.checkpoints.glob("step-*")
    resumed = launch(tmp_path / "2", config, data=small, ranks=1, resume_from=saved)
    # A step takes 16 of the 150 samples: the drops are at 0.45, 0.9, 1.35 and 1.8 epochs.
    drops = {5: 0, 6: 1, 9: 1, 10: 2, 11: 2, 14: 2, 15: 3, 18: 3, 19: 4, 20: 4}
    rates = {step: rate / 0.002 for step, rate in points(stopped, "train/lr") + points(resumed, "train/lr")}
    assert {step: rates[step] for step in (1, 2, 3)} == pytest.approx({1: 1 / 3, 2: 2 / 3, 3: 1.0})
    assert {step: -math.log2(rates[step]) for step in drops} == pytest.approx(drops)


def finished(run: RunDir) -> Path:
    return run.checkpoints / "epoch-0002"


def test_the_weights_reach_the_reported_accuracy_in_one_process(whole: RunDir, small: str) -> None:
    answer = evaluate(whole.checkpoints / "epoch-0002" / "state.pt", source=small, device="cpu")
    reported = state(whole, "epoch-0002")["metrics"]
    assert answer["accuracy"] == reported["val/accuracy"]
    assert answer["loss"] == pytest.approx(reported["val/loss"], rel=1e-12)
    assert answer["samples"] == 67


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": "/absent.npz"}, "there is no /absent.npz"),
        ({"source": "digits", "state": "manifest.json"}, "cannot be read as a checkpoint"),
        ({"source": "digits", "state": "absent.pt"}, "it does not exist"),
        ({"source": "digits", "device": "toaster"}, "the device toaster cannot be used"),
    ],
)
def test_a_state_that_cannot_be_evaluated_is_named(whole: RunDir, change: dict[str, str], message: str) -> None:
    folder = whole.checkpoints / "epoch-0002"
    with pytest.raises((DataError, ConfigError), match=message):
        evaluate(folder / change.get("state", "state.pt"), source=change["source"], device=change.get("device", "cpu"))


@pytest.mark.thorough  # as the first job of tests/e2e/test_jobs.py does
def test_the_defaults_learn_digits(tmp_path: Path) -> None:
    run = launch(tmp_path, {}, data="digits")
    assert points(run, "val/accuracy")[-1][1] >= 0.95


def test_checkpoints_and_the_end_may_be_set_by_steps(tmp_path: Path, small: str) -> None:
    run = job(
        tmp_path,
        {
            **CONFIG,
            "training": {"epochs": 3, "max_steps": 16, "per_device_batch_size": 16},
            "evaluation": {"every_epochs": 2, "remeasure_best": False},
        },
        checkpoint={"every_epochs": None, "every_steps": 6, "monitor": "val/accuracy", "mode": "max"},
    )
    results(on_ranks(1, train, env=environment(run, data=small)))
    assert sorted(path.name for path in run.checkpoints.iterdir()) == [
        "step-00000006",
        "step-00000012",
        "step-00000016",
    ]
    assert [step for step, _ in points(run, "val/accuracy")] == [16]
    assert state(run, "step-00000016")["best"]["metric"] == "val/accuracy"


def test_a_nonfinite_loss_is_logged_and_fails_every_rank(tmp_path: Path, approved: Approved) -> None:
    source = tmp_path / "small.npz"
    pictures = np.linspace(0, 1, 64 * 64, dtype=np.float32).reshape(64, 8, 8)
    np.savez(source, x_train=pictures, y_train=np.arange(64) % 2, x_test=pictures, y_test=np.arange(64) % 2)
    config = {
        "data": {"normalize": {"mean": [0.0], "std": [1e-45]}},  # 1 / std overflows
        "training": {"per_device_batch_size": 4, "max_nonfinite_steps": 2},
        "logging": {"every_steps": 3},
    }
    run = job(tmp_path / "run", config)
    outcomes = on_ranks(2, train, env=environment(run, data=str(source)))
    for outcome in outcomes:
        assert isinstance(outcome, NonFiniteLoss)
        assert outcome.message == approved("message")
    ((step, loss),) = points(run, "train/loss")
    assert step == 3
    assert math.isnan(loss)


@pytest.mark.parametrize(
    "config",
    [
        {"model": {"name": "resnet81"}},
        {"data": {"normalize": {"mean": [0.0, 0.0], "std": [1.0, 1.0]}}},
    ],
)
def test_a_configuration_that_cannot_work_fails_with_a_message(
    tmp_path: Path, config: dict[str, Any], approved: Approved
) -> None:
    (outcome,) = on_ranks(1, train, env=environment(job(tmp_path, config), data="digits"))
    assert isinstance(outcome, ConfigError)
    assert outcome.message == approved.of_row("message")


def test_an_unmeasured_monitor_is_a_configuration_error(tmp_path: Path, approved: Approved) -> None:
    source = tmp_path / "two.npz"
    pictures = np.arange(8 * 64, dtype=np.uint8).reshape(8, 8, 8)
    np.savez(source, x_train=pictures, y_train=np.arange(8) % 2, x_test=pictures, y_test=np.arange(8) % 2)
    run = job(tmp_path / "run", {}, checkpoint={"monitor": "val/accuracy_top5", "mode": "max"})
    (outcome,) = on_ranks(1, train, env=environment(run, data=str(source)))
    assert isinstance(outcome, ConfigError)
    assert outcome.message == approved("message")


def test_a_missing_source_is_named(tmp_path: Path) -> None:
    for outcome in on_ranks(2, train, env=environment(job(tmp_path / "run", {}), data=str(tmp_path / "absent"))):
        assert isinstance(outcome, DataError)
        assert str(tmp_path / "absent") in outcome.message
