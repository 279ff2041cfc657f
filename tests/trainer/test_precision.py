"""Number formats: of training and of evaluations."""

from datetime import timedelta
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from tests.trainer.ranks import on_ranks, recipe, results
from tests.trainer.runs import small_pictures
from torchyard.contract.spec.spec import CheckpointPolicy
from torchyard.run import Run
from trainer.recipes import make_task
from trainer.train import Training
from trainer.world import World, joined


def formats(source: str, *precisions: str) -> list[set[tuple[bool, str]]]:
    """Returns for each precision the number formats of the outputs of linear layers, in training and not."""
    with joined(timedelta(minutes=1)) as world:
        return [_formats(source, precision, world) for precision in precisions]


def _formats(source: str, precision: str, world: World) -> set[tuple[bool, str]]:
    config = recipe(training={"epochs": 1, "max_steps": 2, "precision": precision})
    seen: set[tuple[bool, str]] = set()

    def see(module: nn.Module, _: Any, output: Tensor) -> None:
        seen.add((module.training, str(output.dtype)))

    task = make_task(config, source=source, weights="none", device=world.device)
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


def test_an_evaluation_is_in_bf16_where_training_is_else_in_fp32(tmp_path: Path) -> None:
    (found,) = results(on_ranks(1, formats, small_pictures(tmp_path, val=20), "fp32", "bf16", "fp16"))
    trained, evaluated = (
        [{str(kind) for training, kind in seen if training is wanted} for seen in found] for wanted in (True, False)
    )
    assert trained == [{"torch.float32"}, {"torch.bfloat16"}, {"torch.float16"}]
    assert evaluated == [{"torch.float32"}, {"torch.bfloat16"}, {"torch.float32"}]
