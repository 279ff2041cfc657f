"""Runs whose batches have texts of like lengths, from a checkpoint inside an epoch."""

from collections.abc import Callable
import os
from pathlib import Path
import signal

import pytest

from tests.trainer.ranks import environment, job, on_ranks, results
from tests.trainer.runs import load, same
import torchyard
from torchyard.contract.attempts.rundir import RunDir
from trainer import __main__ as trainer


def train(stop_at: int | None = None) -> bool:
    """Runs the trainer's main, which is asked to stop after step `stop_at`."""
    run = torchyard.init()
    steps = 0

    def should_stop(ask: Callable[[], bool] = run.should_stop) -> bool:
        nonlocal steps
        steps += 1
        if steps == stop_at:
            os.kill(os.getpid(), signal.SIGTERM)
        return ask()

    run.should_stop = should_stop
    try:
        trainer.main()
    finally:
        run.close()
    return True


def launch(
    root: Path, source: Path, *, ranks: int, stop_at: int | None = None, resume_from: Path | None = None
) -> Path:
    """Trains on texts. Returns the newest checkpoint."""
    config = {
        "data": {"source": f"file://{source}", "vocabulary": 300},
        "training": {"epochs": 1, "per_device_batch_size": 8 // ranks, "deterministic": True},
    }
    run: RunDir = job(root, config, trainer="text-classification")
    results(on_ranks(ranks, train, stop_at, env=environment(run, data=str(source), resume_from=resume_from)))
    return max(run.checkpoints.iterdir(), key=lambda path: load(path)["step"])


@pytest.mark.thorough
def test_texts_resume_inside_an_epoch_bit_equal_and_on_other_ranks_with_each_sample_once(tmp_path: Path) -> None:
    source = tmp_path / "data"
    source.mkdir()
    for name in ("good", "bad"):
        lines = [f"a {name} story{' and more' * (number * 7 % 23)}" for number in range(60)]
        (source / f"{name}.txt").write_text("\n".join(lines))
    whole = launch(tmp_path / "whole", source, ranks=1)
    stopped = launch(tmp_path / "stopped", source, ranks=1, stop_at=5)
    assert 0 < load(stopped)["step"] < load(whole)["step"]
    assert same(load(launch(tmp_path / "resumed", source, ranks=1, resume_from=stopped)), load(whole))
    on_two = load(launch(tmp_path / "two", source, ranks=2, resume_from=stopped))
    assert on_two["step"] == load(whole)["step"]
