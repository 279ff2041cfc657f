"""The examples of other ways to train in parallel than DDP: parts of a model, and updates that wait for nobody."""

from pathlib import Path
import shutil
from typing import Any

import pytest
import torch
from torch import Tensor

from tests import examples
from tests.trainer.runs import points
from tests.worker.attempt import Attempt, wait_for
from torchyard.contract.states import EndReason
from worker.engines.local.warm.manager import WarmProcess

KEEPS_GRADIENTS = """
import os, pathlib, runpy, sys
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

path = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"]) / f"gradients-{os.environ['RANK']}.pt"
kept = []

def keep(optimizer, *_):
    if len(kept) < 3:
        kept.append([weight.grad.clone() for group in optimizer.param_groups for weight in group["params"]])
        torch.save(kept, path)

register_optimizer_step_pre_hook(keep)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs the program in its arguments, and saves the gradients of its first step."""


def start(
    folder: Path, name: str, *, warm: WarmProcess, by: str = examples.HELD, number: int = 2, **job: Any
) -> Attempt:
    """Starts an example as a job. In attempt 2 nothing holds it."""
    attempt = Attempt.create(folder, warm=warm, launcher="warm")
    attempt.number = number
    attempt.script((examples.FOLDER / name).read_text(), name=name)
    if (resume := job.pop("resume", None)) is not None:
        shutil.copytree(resume, attempt.run.resume)
    attempt.start_job(by, args=[name], resumes=resume is not None, **job)
    return attempt


def gradients(folder: Path, *, warm: WarmProcess, ranks: int) -> list[Tensor]:
    """Returns the gradients of the first three steps of the pipeline, in the order of the model."""
    attempt = start(folder, "pipeline.py", warm=warm, by=KEEPS_GRADIENTS, world_size=ranks)
    assert attempt.report().reason is EndReason.COMPLETED, attempt.log("rank-0", "stderr")
    kept = [torch.load(attempt.run.job / f"gradients-{rank}.pt") for rank in range(ranks)]
    return [gradient for step in range(3) for part in kept for gradient in part[step]]


@pytest.mark.thorough
def test_the_gradients_of_a_model_in_parts_are_those_of_one_device(tmp_path: Path, warm_process: WarmProcess) -> None:
    whole = gradients(tmp_path / "whole", warm=warm_process, ranks=1)
    parts = gradients(tmp_path / "parts", warm=warm_process, ranks=2)
    assert len(parts) == len(whole) == 3 * 6
    for ours, theirs in zip(parts, whole, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


def saved(attempt: Attempt) -> Path:
    """Pauses an attempt that is held at a step. Returns its checkpoint."""
    wait_for(lambda: examples.HELD_AT in examples.losses(attempt.run) or attempt.run.exit.exists(), "the step")
    attempt.stop(EndReason.PAUSED)
    assert attempt.report().reason is EndReason.PAUSED, attempt.log("rank-0", "stderr")
    (found,) = [path for path in attempt.run.checkpoints.iterdir() if not path.name.startswith(".")]
    return found


@pytest.mark.thorough
def test_stale_gradients_learn_and_go_on_where_they_were(tmp_path: Path, warm_process: WarmProcess) -> None:
    first = start(tmp_path / "first", "stale_gradients.py", warm=warm_process, number=1)
    second = start(tmp_path / "second", "stale_gradients.py", warm=warm_process, resume=saved(first))
    assert second.report().reason is EndReason.COMPLETED, second.log("rank-0", "stderr")
    before, after = examples.losses(first.run), examples.losses(second.run)
    assert list(after) == list(range(max(before) + 1, 201))
    assert after[200] < 1e-3 < before[1]
    assert all(staleness >= 0 for _, staleness in points(second.run, "train/staleness"))


def test_stale_gradients_are_stale(tmp_path: Path, warm_process: WarmProcess) -> None:
    """Between reading the weights and changing them in step 2, rank 0 waits until rank 1 has changed them 10 times."""
    slow = """
import os, pathlib, runpy, sys, time
from torchyard.run.context import Run
import torch

folder, rank = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"]), int(os.environ["RANK"])
log, grad = Run.log, torch.autograd.grad

def grad_of(loss, weights, calls=[]):
    calls.append(1)
    if (rank, len(calls)) == (0, 2):
        (folder / "read").touch()
        while not (folder / "changed").exists(): time.sleep(0.01)
    while rank == 1 and not (folder / "read").exists(): time.sleep(0.01)
    return grad(loss, weights)

def logged(run, values, *, step):
    log(run, values, step=step)
    if run.rank == 1 and step == 10: (folder / "changed").touch()

Run.log, torch.autograd.grad = logged, grad_of
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
    attempt = start(tmp_path, "stale_gradients.py", warm=warm_process, by=slow)
    assert attempt.report().reason is EndReason.COMPLETED, attempt.log("rank-0", "stderr")
    staleness = dict(points(attempt.run, "train/staleness"))
    assert staleness[1] == 0
    assert staleness[2] >= 10
