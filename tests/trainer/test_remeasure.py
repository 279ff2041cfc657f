"""The best checkpoint, measured again in one process when a run has ended."""

from collections.abc import Mapping
import json
import os
from pathlib import Path
import shutil
import signal
from typing import Any

import numpy as np
import pytest
import torch

from tests.approved import Approved
from tests.trainer.ranks import environment, job, on_ranks, results
from tests.trainer.runs import lines, points, small_pictures
import torchyard
from torchyard.contract.attempts.events import Message, Remeasured
from torchyard.contract.attempts.records import StopRequest
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.spec.spec import CheckpointPolicy
from torchyard.contract.states import EndReason
from torchyard.host.recordfiles import write_record
from torchyard.run import Run
from torchyard.run.afterwards import Afterwards
from torchyard.run.current import has_finished
from trainer import __main__ as trainer
from trainer.remeasure import best_of, differences, remeasure

CONFIG: dict[str, Any] = {
    "training": {"epochs": 2, "per_device_batch_size": 16},
    "ema": {"decay": 0.5},
    "evaluation": {"remeasure_best": False},
}
POLICY = CheckpointPolicy()
CPU = torch.device("cpu")


def train(killed_at: int | None = None) -> bool:
    """Runs the trainer's main. Rank 0 gets SIGTERM at that batch of what it measures again. Returns if it finished."""
    run = torchyard.init()
    batches = 0

    def keep_alive(self: Afterwards) -> None:
        nonlocal batches
        batches += 1
        if batches == killed_at:
            os.kill(os.getpid(), signal.SIGTERM)

    Afterwards.keep_alive = keep_alive
    try:
        trainer.main()
    finally:
        run.close()
    return has_finished(RunDir.of_job(Path(os.environ["TORCHYARD_RUN_DIR"])))


def launch(root: Path, config: Mapping[str, Any], *, data: str, ranks: int = 1, killed_at: int | None = None) -> RunDir:
    run = job(root, {**CONFIG, **config})
    finished = results(on_ranks(ranks, train, killed_at, env=environment(run, data=data)))
    assert finished == [True] * ranks
    return run


def measured_again(run: RunDir) -> list[Remeasured]:
    return [line for line in lines(run) if isinstance(line, Remeasured)]


def told(run: RunDir, level: str) -> list[str]:
    return [line.text for line in lines(run) if isinstance(line, Message) and line.level == level]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_pictures(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, data: str) -> RunDir:
    """A run with an EMA of its weights, whose best checkpoint was not re-evaluated."""
    run = launch(tmp_path_factory.mktemp("trained"), {}, data=data)
    assert measured_again(run) == []
    return run


@pytest.fixture
def ended(tmp_path: Path, trained: RunDir) -> RunDir:
    """The same, to be changed."""
    shutil.copytree(trained.root, tmp_path / "run", ignore=shutil.ignore_patterns("cache"))
    run = RunDir(tmp_path / "run")
    run.events.unlink()
    return run


def again(ended: RunDir, *, data: str, policy: CheckpointPolicy = POLICY) -> None:
    run = Run({**environment(ended, data=data), "TORCHYARD_CONFIG": str(ended.config)})
    remeasure(run, policy=policy, device=CPU)
    run.close()


@pytest.mark.thorough
def test_the_averages_of_sharded_weights_measure_the_same_in_one_process(tmp_path: Path, data: str) -> None:
    sharded: dict[str, Any] = {"evaluation": {}, "distributed": {"strategy": "fsdp"}}
    run = launch(tmp_path, sharded, data=data, ranks=2)
    step, value = min(points(run, "val/loss"), key=lambda point: point[1])
    (line,) = measured_again(run)
    assert (line.name, line.attempt) == (f"epoch-{step // 5:04}", None)
    assert line.metrics["val/loss"] == pytest.approx(value, rel=1e-5)
    assert line.metrics["val/accuracy"] == dict(points(run, "val/accuracy"))[step]
    assert told(run, "warning") == []


def test_a_run_measures_its_best_again_when_all_ranks_have_left(tmp_path: Path, data: str) -> None:
    run = launch(tmp_path, {"evaluation": {}, "training": {"epochs": 1}}, data=data, ranks=2)
    (line,) = measured_again(run)
    assert line.metrics["val/loss"] == pytest.approx(min(value for _, value in points(run, "val/loss")), rel=1e-5)
    assert told(run, "warning") == []


def test_a_run_that_had_ended_before_is_not_measured_again(tmp_path: Path, data: str, trained: RunDir) -> None:
    run = job(tmp_path, {**CONFIG, "evaluation": {}})
    env = environment(run, data=data, resume_from=trained.checkpoints / "epoch-0002")
    assert results(on_ranks(1, train, None, env=env)) == [True]
    assert measured_again(run) == []
    assert "the best checkpoint is not re-evaluated: the run had ended before this attempt" in told(run, "info")


def test_a_stop_ends_what_is_measured_and_the_run_has_finished(tmp_path: Path, data: str) -> None:
    run = launch(tmp_path, {"evaluation": {}, "training": {"epochs": 1}}, data=data, killed_at=1)
    assert measured_again(run) == []
    assert "the best checkpoint was not re-evaluated: the job was asked to stop" in told(run, "info")


def test_nothing_is_measured_where_a_stop_was_asked_for_before(ended: RunDir, data: str, approved: Approved) -> None:
    write_record(ended.stop, StopRequest(reason=EndReason.PAUSED))
    again(ended, data=data)
    assert measured_again(ended) == []
    assert told(ended, "info") == [approved("told")]


def test_a_value_that_differs_is_a_warning(ended: RunDir, data: str, tmp_path: Path, approved: Approved) -> None:
    with np.load(data) as found:
        arrays = dict(found)
    arrays["y_test"] = (arrays["y_test"] + 1) % 10
    np.savez(tmp_path / "other.npz", **arrays)
    again(ended, data=str(tmp_path / "other.npz"))
    (line,) = measured_again(ended)
    (text,) = told(ended, "warning")
    assert text == approved("text", metrics=f"{line.metrics['val/loss']:.6g}")


@pytest.mark.parametrize("damage", ["data", "state"])
def test_a_failure_is_a_warning_and_no_error(
    ended: RunDir, data: str, tmp_path: Path, damage: str, approved: Approved
) -> None:
    if damage == "state":
        (ended.checkpoints / "epoch-0002" / "state.pt").write_bytes(b"torn")
    again(ended, data=data if damage == "state" else str(tmp_path / "gone.npz"))
    assert measured_again(ended) == []
    (text,) = told(ended, "warning")
    assert text == approved.of_row("text", tmp_path=tmp_path)


def know_best(ended: RunDir, **changes: Any) -> None:
    """Tells the run of a best checkpoint of attempt 1, as the worker does."""
    best = {"name": "earlier", "attempt": 1, "step": 20, "metrics": {"val/loss": 0.0}, "folder": None, **changes}
    ended.config.chmod(0o600)
    ended.config.write_text(json.dumps({**json.loads(ended.config.read_text()), "best": best}))


def test_the_best_of_an_earlier_attempt_is_measured_from_where_the_worker_brought_it(ended: RunDir, data: str) -> None:
    folder = ended.input / "best"
    shutil.copytree(ended.checkpoints / "epoch-0001", folder)
    know_best(ended, folder=str(folder))
    again(ended, data=data)
    (line,) = measured_again(ended)
    assert (line.name, line.attempt) == ("earlier", 1)
    assert len(told(ended, "warning")) == 1


def test_the_best_of_an_earlier_attempt_that_is_not_here_is_told(ended: RunDir, data: str, approved: Approved) -> None:
    know_best(ended)
    again(ended, data=data)
    assert measured_again(ended) == []
    assert told(ended, "info") == [approved("told")]


@pytest.mark.parametrize(
    ("metrics", "mode", "expected"),
    [
        ({"val/loss": 1e9}, "min", None),
        ({"val/loss": 1e9}, "max", 1),
        ({"val/loss": "NaN"}, "min", None),
        ({"val/accuracy": 0.0}, "min", None),
    ],
)
def test_the_best_is_that_of_all_attempts(ended: RunDir, metrics: Any, mode: Any, expected: int | None) -> None:
    know_best(ended, metrics=metrics)
    best = best_of(Run(environment(ended, data="digits")), CheckpointPolicy(mode=mode))
    assert best is not None
    assert best.attempt == expected


def test_of_equal_values_the_earlier_attempts_is_the_best(ended: RunDir) -> None:
    own = best_of(Run(environment(ended, data="digits")), POLICY)
    assert own is not None
    know_best(ended, metrics=dict(own.metrics), step=own.step)
    best = best_of(Run(environment(ended, data="digits")), POLICY)
    assert best is not None
    assert best.attempt == 1


def test_small_differences_are_none(approved: Approved) -> None:
    before = {"val/loss": 1.0, "val/iou": "NaN", "train/loss": 5.0, "val/dice": 0.0, "val/accuracy": 0.5}
    assert differences(before, {"val/loss": 1.0009, "val/iou": 0.1, "val/dice": 0.0, "val/accuracy": 0.51}) == [
        approved("differences")
    ]
