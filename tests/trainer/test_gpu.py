"""On a machine with a GPU (`make test-gpu`): the loop on CUDA and NCCL at world size 1."""

from datetime import timedelta
from typing import Any

import pytest
import torch

from tests.trainer.ranks import on_ranks, recipe, results
from torchyard.run import Run
from torchyard.spec import CheckpointPolicy
from trainer.loop import Training
from trainer.recipes import make_task
from trainer.window import Step
from trainer.world import joined

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU on this machine"),
]

OPTIONS: list[dict[str, Any]] = [
    {},
    {"training": {"precision": "fp32", "channels_last": False}, "optimizer": {"name": "sgd", "clip_grad_norm": 1.0}},
    {"optimizer": {"clip_grad_norm": 1.0}, "distributed": {"comm_hook": "bf16"}},
    {"loss": {"mixup": 0.2}, "data": {"augment": ["hflip"]}, "distributed": {"sync_batchnorm": True}},
    {"distributed": {"comm_hook": "powersgd"}},
    {"distributed": {"strategy": "fsdp"}},
    {"distributed": {"strategy": "local_sgd"}},
    {"training": {"compile": True}},
]


def train(options: dict[str, Any]) -> tuple[str, float, int]:
    """Trains with every wait for the device between two log lines forbidden. Precision, loss and peak memory."""
    training_options = {"epochs": 1, "max_steps": 12, "gradient_accumulation_steps": 2, **options.get("training", {})}
    config = recipe(**{**options, "training": training_options, "logging": {"every_steps": 6}})
    with joined(timedelta(minutes=2)) as world:
        task = make_task(config, source="digits", weights="none", device=world.device)
        run = Run({})
        training = Training(
            task, trainer="image-classification", config=config, policy=CheckpointPolicy(), run=run, world=world
        )
        step = training.learner.step

        def watched(number: int, *arguments: Any, **named: Any) -> Step:
            if number in {1, 7}:  # the first step of each layout allocates and compiles
                return step(number, *arguments, **named)
            torch.cuda.set_sync_debug_mode("error")
            try:
                return step(number, *arguments, **named)
            finally:
                torch.cuda.set_sync_debug_mode("default")

        training.learner.step = watched
        assert training.train()
        card = training.report.card
        return card.precision, training.report.metrics["train/loss"], card.peak_memory_bytes or 0


@pytest.mark.parametrize("options", OPTIONS)
def test_no_step_waits_for_the_device(options: dict[str, Any]) -> None:
    ((precision, loss, peak),) = results(on_ranks(1, train, options))
    wanted = options.get("training", {}).get("precision", "bf16")
    assert precision == wanted
    assert 0 < loss < 5
    assert peak > 2**20
