"""A run that is killed repeatedly ends bit-equal to an uninterrupted one, with every technique at once."""

from collections.abc import Callable
import os
from pathlib import Path
import random
import signal
from typing import Any

import pytest

from tests.trainer.ranks import environment, job, on_ranks, results
from tests.trainer.runs import load, points, same, small_pictures
import torchyard
from torchyard.contract.attempts.rundir import RunDir
from trainer import __main__ as trainer

EVERYTHING: dict[str, Any] = {
    "data": {"augment": ["hflip", "crop"]},
    "training": {
        "epochs": 4,
        "per_device_batch_size": 6,
        "gradient_accumulation_steps": 2,
        "deterministic": True,
        "precision": "fp16",
    },
    "loss": {"label_smoothing": 0.1, "mixup": 0.4},
    "optimizer": {"clip_grad_norm": 1.0, "lookahead": {"every_steps": 4}, "lr_scaling": "sqrt"},
    "lr_scheduler": {"name": "plateau", "warmup_steps": 5, "patience": 0},
    "ema": {"decay": 0.9, "ramp": 5},
    "early_stopping": {"patience": 3},
    "distributed": {"sync_batchnorm": True},
    "logging": {"every_steps": 3},
}
STRATEGIES: dict[str, dict[str, Any]] = {
    "ddp": EVERYTHING,
    "powersgd": {
        **EVERYTHING,
        "ema": {**EVERYTHING["ema"], "device": "cpu"},
        "distributed": {"comm_hook": "powersgd"},
    },
    "fsdp": {
        **EVERYTHING,
        "training": {**EVERYTHING["training"], "precision": "bf16"},
        "distributed": {"strategy": "fsdp"},
    },
    "local_sgd": {
        **EVERYTHING,
        "training": {**EVERYTHING["training"], "precision": "bf16"},
        "ema": {**EVERYTHING["ema"], "device": "cpu"},
        "distributed": {"strategy": "local_sgd", "local_sgd": {"warmup_steps": 3, "period": 5}},
    },
}


def train(dies: int | None = None, after: int = 0) -> bool:
    """Runs the trainer's main. Rank `dies` is killed after `after` steps."""
    run = torchyard.init()
    steps = 0

    def should_stop(ask: Callable[[], bool] = run.should_stop) -> bool:
        nonlocal steps
        steps += 1
        if run.rank == dies and steps == after:
            os.kill(os.getpid(), signal.SIGKILL)
        return ask()

    run.should_stop = should_stop
    trainer.main()
    return True


class Chain:
    """The attempts of one job. Each resumes from the newest complete checkpoint of the earlier ones."""

    def __init__(self, root: Path, config: dict[str, Any], data: str) -> None:
        self.attempts: list[RunDir] = []
        self._root, self._config, self._data = root, config, data

    def attempt(self, *, dies: int | None = None, after: int = 0) -> bool:
        """Runs the next attempt. Returns whether it completed."""
        resume_from = self.newest()
        run = job(self._root / str(len(self.attempts)), self._config, checkpoint={"every_steps": 2})
        self.attempts.append(run)
        env = environment(run, data=self._data, resume_from=resume_from)
        try:
            results(on_ranks(2, train, dies, after, env=env))
        except EOFError:  # from the killed rank
            return False
        return True

    def newest(self) -> Path | None:
        whole = [path.parent for run in self.attempts for path in run.checkpoints.glob("[!.]*/manifest.json")]
        return max(whole, key=lambda path: load(path)["step"], default=None)

    def points(self, key: str) -> dict[int, float]:
        """Returns the values by step; a later attempt's value replaces an earlier one's."""
        written = [run for run in self.attempts if run.events.exists()]
        return {step: value for run in written for step, value in points(run, key)}


@pytest.mark.thorough  # a language model's run that is killed is a quick test
@pytest.mark.parametrize(
    ("strategy", "kills"),
    [
        ("ddp", 1),
        ("ddp", 2),
        ("ddp", 4),
        ("ddp", 10),
        ("fsdp", 2),
        ("powersgd", 2),
        ("local_sgd", 2),
    ],
)
def test_a_run_killed_at_random_steps_ends_bit_equal_to_an_uninterrupted_one(
    tmp_path: Path, strategy: str, kills: int
) -> None:
    data = small_pictures(tmp_path, train=130, val=20)
    config = STRATEGIES[strategy]
    if kills <= 2:
        config = {**config, "training": {**config["training"], "epochs": 2}}
    alone, killed = Chain(tmp_path / "alone", config, data), Chain(tmp_path / "killed", config, data)
    assert alone.attempt()
    chance = random.Random(7)
    for _ in range(kills):
        assert not killed.attempt(dies=chance.randrange(2), after=chance.randint(1, 3))
    assert killed.attempt()

    ours, theirs = killed.newest(), alone.newest()
    assert ours is not None
    assert theirs is not None
    assert same(load(ours), load(theirs))
    for key in ("train/loss", "train/accuracy", "train/lr", "val/loss", "val/accuracy"):
        assert killed.points(key) == alone.points(key)
