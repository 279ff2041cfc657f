"""Number formats: of training and of evaluations."""

from datetime import timedelta
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.trainer.ranks import on_ranks, recipe, results
from torchyard.contract.spec.spec import CheckpointPolicy
from torchyard.run import Run
from trainer.recipes import make_task
from trainer.train import Training
from trainer.world import joined


def formats(precision: str) -> set[tuple[bool, str]]:
    """Returns the number formats of the outputs of linear layers, in training and not."""
    config = recipe(training={"epochs": 1, "max_steps": 2, "precision": precision})
    seen: set[tuple[bool, str]] = set()

    def see(module: nn.Module, _: Any, output: Tensor) -> None:
        seen.add((module.training, str(output.dtype)))

    with joined(timedelta(minutes=1)) as world:
        task = make_task(config, source="digits", weights="none", device=world.device)
        for module in task.model.modules():
            if isinstance(module, nn.Linear):
                module.register_forward_hook(see)
        run = Run({})
        training = Training(
            task, trainer="image-classification", config=config, policy=CheckpointPolicy(), run=run, world=world
        )
        seen.clear()  # the card measures the model
        training.train()
    return seen


@pytest.mark.parametrize(
    ("precision", "trained", "evaluated"),
    [
        pytest.param("fp32", torch.float32, torch.float32, marks=pytest.mark.thorough),
        ("bf16", torch.bfloat16, torch.bfloat16),
        ("fp16", torch.float16, torch.float32),
    ],
)
def test_an_evaluation_is_in_bf16_where_training_is_else_in_fp32(
    precision: str, trained: torch.dtype, evaluated: torch.dtype
) -> None:
    assert results(on_ranks(1, formats, precision)) == [{(True, str(trained)), (False, str(evaluated))}]
