"""Checkpoints of the commit before the state had named parts resume, bit-equal to a resume by that commit's code."""

import json
import os
from pathlib import Path
import subprocess
import sys
import tarfile
from typing import Any

import pytest

from tests.migrations.older import git
from tests.trainer import resumption
from tests.trainer.runs import points, same, small_pictures, state
from torchyard.contract.rundir import RunDir

COMMIT = "f9aa0fba07931b77b8d70f4c1ba1b43154b0c934"
PROGRAM = Path(resumption.__file__)
LAST = "epoch-0003"

TECHNIQUES: dict[str, Any] = {
    "data": {"augment": ["hflip", "crop"]},
    "training": {
        "epochs": 3,
        "per_device_batch_size": 6,
        "gradient_accumulation_steps": 2,
        "deterministic": True,
        "precision": "bf16",
    },
    "loss": {"mixup": 0.4},
    "optimizer": {"clip_grad_norm": 1.0, "lookahead": {"every_steps": 4}},
    "lr_scheduler": {"name": "plateau", "warmup_steps": 3, "patience": 0},
    "ema": {"decay": 0.9, "ramp": 5},
    "early_stopping": {"patience": 3},
    "logging": {"every_steps": 3},
}
STRATEGIES: dict[str, dict[str, Any]] = {
    "ddp": {"strategy": "ddp", "sync_batchnorm": True},
    "powersgd": {"comm_hook": "powersgd"},
    "fsdp": {"strategy": "fsdp"},
    "local_sgd": {"strategy": "local_sgd", "local_sgd": {"warmup_steps": 3, "period": 5}},
}


@pytest.fixture(scope="session")
def old_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project as it was at COMMIT."""
    if not git("rev-parse", "--verify", "--quiet", f"{COMMIT}^{{commit}}"):
        pytest.skip(f"the history of this checkout does not reach to {COMMIT}")
    folder = tmp_path_factory.mktemp("before")
    archive = folder / "source.tar"
    assert git("archive", f"--output={archive}", COMMIT, "--", "torchyard", "trainer", "tests") == ""
    with tarfile.open(archive) as source:
        source.extractall(folder / "source", filter="data")
    return folder / "source"


def run_old(source: Path, folder: Path, scenario: dict[str, Any]) -> None:
    """Runs the attempts of a scenario by the old code."""
    env = {**os.environ, "PYTHONPATH": str(source)}
    command = [sys.executable, "-P", PROGRAM, folder, json.dumps(scenario)]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"trained by {source / 'trainer'}\n")


@pytest.mark.parametrize(
    ("strategy", "checkpoint"),
    [
        *(
            pytest.param(strategy, checkpoint, marks=pytest.mark.thorough)
            for strategy in STRATEGIES
            for checkpoint in ("at a stop", "between steps", "after an epoch")
        ),
    ],
)
def test_an_old_checkpoint_resumes_bit_equal_to_the_old_code(
    old_source: Path, tmp_path: Path, strategy: str, checkpoint: str
) -> None:
    name, stop_at = {
        "at a stop": ("step-00000010", 10),
        "between steps": ("step-00000008", None),
        "after an epoch": ("epoch-0001", None),
    }[checkpoint]
    scenario: dict[str, Any] = {
        "config": {**TECHNIQUES, "distributed": STRATEGIES[strategy]},
        "checkpoint": {"every_steps": 8},
        "ranks": 2,
        "data": small_pictures(tmp_path, train=150, val=20),
    }
    resume_from = f"first/job/checkpoints/{name}"
    attempts = [("first", stop_at, None), ("old", None, resume_from)]
    run_old(old_source, tmp_path, {**scenario, "attempts": attempts})
    resumption.attempt(tmp_path, scenario, "new", None, resume_from)

    old, new = RunDir(tmp_path / "old"), RunDir(tmp_path / "new")
    saved = sorted(path.name for path in old.checkpoints.iterdir())
    assert LAST in saved
    assert saved == sorted(path.name for path in new.checkpoints.iterdir())
    for key in ("train/loss", "train/grad_norm", "train/lr", "val/loss", "val/accuracy"):
        assert points(new, key) == points(old, key) != []
    for name in saved:
        ours, theirs = state(new, name), state(old, name)
        assert ours.keys() - theirs.keys() == {"data_files", "data_listing"}
        assert [key for key in theirs if not same(ours[key], theirs[key])] == []
