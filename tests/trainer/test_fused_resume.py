"""A state of an optimizer resumes with other kernels, as it must when a job moves between a CPU and a GPU."""

from pathlib import Path
from typing import Any

import pytest

from tests.trainer.ranks import environment, job, on_ranks, results
from tests.trainer.runs import points, small_pictures, state
from torchyard.contract.attempts.rundir import RunDir
from trainer import __main__ as trainer


def attempt(root: Path, *, data: str, resume_from: Path | None = None, **optimizer: Any) -> RunDir:
    config = {
        "training": {"epochs": 2, "per_device_batch_size": 50},
        "optimizer": optimizer,
        "logging": {"every_steps": 1},
        "evaluation": {"remeasure_best": False},
    }
    run = job(root, config)
    results(on_ranks(1, trainer.main, env=environment(run, data=data, resume_from=resume_from)))
    return run


@pytest.mark.parametrize("name", ["adamw", pytest.param("sgd", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("fused", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_a_state_resumes_with_the_kernels_of_the_new_device(tmp_path: Path, name: str, fused: bool) -> None:
    data = small_pictures(tmp_path)
    first = attempt(tmp_path / "1", data=data, name=name, fused=not fused)
    saved = first.checkpoints / "epoch-0001"
    second = attempt(tmp_path / "2", data=data, resume_from=saved, name=name, fused=fused)
    groups = state(second, "epoch-0002")["optimizer"]["param_groups"]
    assert [bool(group["fused"]) for group in groups] == [fused, fused]
    expected = dict(points(first, "train/loss"))
    assert dict(points(second, "train/loss")) == pytest.approx({step: expected[step] for step in (4, 5, 6)}, rel=1e-4)
