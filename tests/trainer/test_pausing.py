"""A run that pauses by itself at an epoch or a step, and goes on later bit-equal to one that did not."""

from pathlib import Path
from typing import Any

import pytest

from tests.trainer.ranks import environment, job, on_ranks, results
from tests.trainer.runs import load, points, same, small_pictures
from tests.trainer.test_resume import EVERYTHING, STRATEGIES
import torchyard
from torchyard.contract.attempts.rundir import Env, RunDir
from trainer import __main__ as trainer

KEYS = ("train/loss", "train/accuracy", "train/lr", "val/loss", "val/accuracy")


def train() -> bool:
    """Runs the trainer's main. Returns whether the program has done all its work."""
    run = torchyard.init()
    trainer.main()
    return not run.told_to_stop


class Trial:
    """The attempts of one job. Each goes on from the newest checkpoint of the one before."""

    def __init__(self, root: Path, config: dict[str, Any], data: str, *, every_epochs: int | None = 1) -> None:
        self.attempts: list[RunDir] = []
        self._root, self._config, self._data, self._every_epochs = root, config, data, every_epochs

    def attempt(self, pause_at: str | None, *, ranks: int = 2) -> bool:
        """Runs the next attempt. Returns whether it completed; if it has not, its ranks have left their mark."""
        resume_from = self.newest() if self.attempts else None
        run = job(self._root / str(len(self.attempts)), self._config, checkpoint={"every_epochs": self._every_epochs})
        self.attempts.append(run)
        env = environment(run, data=self._data, resume_from=resume_from)
        if pause_at is not None:
            env[Env.PAUSE_AT] = pause_at
        completed = results(on_ranks(ranks, train, env=env))
        assert completed == [completed[0]] * ranks
        assert run.paused.exists() is not completed[0]
        return completed[0]

    def newest(self) -> Path:
        whole = [path.parent for run in self.attempts for path in run.checkpoints.glob("[!.]*/manifest.json")]
        return max(whole, key=lambda path: load(path)["step"])

    def points(self, key: str) -> dict[int, float]:
        return {step: value for run in self.attempts for step, value in points(run, key)}


def small(**training: Any) -> dict[str, Any]:
    return {**EVERYTHING, "training": {**EVERYTHING["training"], "epochs": 3, **training}}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("strategy", "pauses", "every_epochs"),
    [
        ("ddp", ["steps:4", "epochs:2"], None),
        ("ddp", ["epochs:1", "steps:13"], 1),
        ("ddp", ["epochs:1"], 1),
        ("fsdp", ["steps:7"], 1),
        ("local_sgd", ["steps:9"], 1),
        ("local_sgd", ["epochs:2"], None),
    ],
)
def test_a_run_that_has_paused_goes_on_bit_equal_to_an_unbroken_one(
    tmp_path: Path, strategy: str, pauses: list[str], every_epochs: int | None
) -> None:
    data = small_pictures(tmp_path, train=130, val=20)
    config = {**STRATEGIES[strategy]}
    config["training"] = {**config["training"], "epochs": 3}
    unbroken = Trial(tmp_path / "unbroken", config, data, every_epochs=every_epochs)
    paused = Trial(tmp_path / "paused", config, data, every_epochs=every_epochs)
    assert unbroken.attempt(None)
    for pause_at in pauses:
        assert not paused.attempt(pause_at)
        unit, number = pause_at.split(":")
        saved = load(paused.newest())
        assert (saved["epoch"] if unit == "epochs" else saved["step"]) == int(number)
        assert saved["end_of_epoch"] is (unit == "epochs")
    assert paused.attempt(None)

    assert same(load(paused.newest()), load(unbroken.newest()))
    for key in KEYS[:3]:
        assert paused.points(key) == unbroken.points(key)
    for key in KEYS[3:]:
        assert unbroken.points(key).items() <= paused.points(key).items()


@pytest.mark.thorough
@pytest.mark.parametrize(("pause_at", "every_epochs"), [("steps:2", 1), ("epochs:1", None)])
def test_it_is_evaluated_where_it_pauses(tmp_path: Path, pause_at: str, every_epochs: int | None) -> None:
    data = small_pictures(tmp_path, train=130, val=20)
    trial = Trial(tmp_path / "trial", {**small(), "evaluation": {"every_epochs": 3}}, data, every_epochs=every_epochs)
    assert not trial.attempt(pause_at, ranks=1)
    saved = load(trial.newest())
    assert saved["metrics"]["val/loss"] == trial.points("val/loss")[saved["step"]]
    assert trial.attempt(None, ranks=1)
    unbroken = Trial(tmp_path / "unbroken", {**small(), "evaluation": {"every_epochs": 3}}, data)
    assert unbroken.attempt(None, ranks=1)
    assert same(load(trial.newest()), load(unbroken.newest()))


def test_at_its_point_already_it_trains_no_step_and_at_its_end_it_completes(tmp_path: Path) -> None:
    data = small_pictures(tmp_path, train=40, val=20)
    trial = Trial(tmp_path / "trial", {**small(epochs=2), "evaluation": {"remeasure_best": False}}, data)
    assert not trial.attempt("epochs:1", ranks=1)
    before = trial.newest()
    assert not trial.attempt("epochs:1", ranks=1)
    assert trial.newest() == before
    assert points(trial.attempts[-1], "train/loss") == []
    assert trial.attempt("epochs:2", ranks=1)
