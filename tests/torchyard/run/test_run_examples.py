"""The docstrings of the run context: their examples run in a run directory, and they name each parameter."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.docstrings import examples_of, run_example, unnamed_parameters
import torchyard
from torchyard import run as package
from torchyard.contract.attempts.rundir import Env, RunDir
from torchyard.run import current
from torchyard.run.context import Run
from torchyard.run.given import Given
from torchyard.run.showing import Showing


def test_each_example_of_the_run_context_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunDir(tmp_path / "run")
    folder.create()
    run = Run({Env.RUN_DIR: str(folder.job)})
    monkeypatch.setattr(current, "_current", run)
    names = {"np": np, "run": run, "torch": torch, "torchyard": torchyard}
    for example in examples_of(package, package.init, Run, Given, Showing):
        run_example(example, names)
    run.close()
    assert len([*folder.checkpoints.iterdir()]) == 2
    assert all(word in folder.events.read_text() for word in ("train/loss", "no cracks", "samples_per_second"))


def test_each_parameter_of_the_run_context_is_described() -> None:
    assert unnamed_parameters(Run, Given, Showing) == []
