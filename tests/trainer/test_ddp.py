"""What several ranks compute together is what one process would."""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributed import GradBucket  # pyright: ignore[reportPrivateImportUsage]
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future

from tests.trainer.ranks import environment, job, on_ranks, recipe, results
from torchyard.recipes import ImageClassification
from torchyard.run import Run
from torchyard.spec import CheckpointPolicy
from trainer.__main__ import make_training
from trainer.loop import Training
from trainer.recipes.classification import make_classifier
from trainer.sampler import TrainSampler
from trainer.world import World, joined

SAMPLES = 30
MINUTE = timedelta(minutes=1)


class Regression:
    """A task in double precision, small enough to be checked by hand."""

    facts: dict[str, Any] = {}
    samples = SAMPLES

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.inputs = torch.randn(SAMPLES, 3, dtype=torch.float64)
        self.targets = torch.randn(SAMPLES, 1, dtype=torch.float64)
        self.model: nn.Module = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)).double()
        self.loss: Callable[[Tensor, Tensor], Tensor] = nn.MSELoss()

    def training_batches(self, plan: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        return ((self.inputs[batch], self.targets[batch]) for batch in plan)

    def evaluate(self, world: World, *, on_batch: Callable[[], None]) -> dict[str, float]:
        return {}


def regression(batch: int, accumulate: int) -> ImageClassification:
    return recipe(
        training={"epochs": 2, "per_device_batch_size": batch, "gradient_accumulation_steps": accumulate},
        optimizer={"name": "sgd", "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0},
        lr_scheduler={"name": "constant"},
        logging={"every_steps": 2},
    )


def train_regression(batch: int, accumulate: int) -> tuple[list[Tensor], int, int]:
    """The weights after two epochs, the optimizer steps, and how often gradients were all-reduced."""
    reduced = 0

    def count(state: None, bucket: GradBucket) -> Future[Tensor]:
        nonlocal reduced
        reduced += bucket.is_last()
        return allreduce_hook(None, bucket)  # pyright: ignore[reportArgumentType] None is the default group

    with joined(MINUTE) as world:
        config = regression(batch, accumulate)
        training = Training(Regression(), config=config, policy=CheckpointPolicy(), run=Run({}), world=world)
        training.model.register_comm_hook(None, count)
        training.train()
        return [parameter.detach().clone() for parameter in training.task.model.parameters()], training.step, reduced


def reference(share: int, accumulate: int) -> list[Tensor]:
    """The same by plain gradient descent on the mean over each window's samples."""
    task = Regression()
    for epoch in (1, 2):
        plan = TrainSampler(SAMPLES, batch_size=share, seed=42).batches(epoch)
        for first in range(0, len(plan), accumulate):
            batch = torch.cat(plan[first : first + accumulate])
            task.model.zero_grad()
            task.loss(task.model(task.inputs[batch]), task.targets[batch]).backward()
            with torch.no_grad():
                for parameter in task.model.parameters():
                    assert parameter.grad is not None
                    parameter.sub_(parameter.grad, alpha=0.1)
    return [parameter.detach() for parameter in task.model.parameters()]


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_gradients_are_those_of_one_process_on_the_joined_batch(ranks: int, accumulate: int) -> None:
    # Four batches of 8, 8, 8 and 6 samples: the windows differ in samples, and the last may have fewer batches.
    expected = reference(8, accumulate)
    for weights, steps, reduced in results(on_ranks(ranks, train_regression, 8 // ranks, accumulate)):
        assert steps == 2 * -(-4 // accumulate)
        assert reduced == steps
        for ours, theirs in zip(weights, expected, strict=True):
            assert torch.allclose(ours, theirs, rtol=0, atol=1e-13)


def train_digits() -> dict[str, Any]:
    run = Run(os.environ)
    config = ImageClassification.model_validate(run.config["config"])
    with joined(MINUTE) as world:
        training = make_training(run, config=config, policy=CheckpointPolicy(), world=world)
        first = [parameter.detach().clone() for parameter in training.task.model.parameters()]
        stream = torch.rand(4)
        finished = training.train()
        last = [parameter.detach().clone() for parameter in training.task.model.parameters()]
        return {"first": first, "stream": stream, "last": last, "finished": finished}


def test_ranks_begin_and_stay_with_the_same_weights_and_draw_different_numbers(tmp_path: Path) -> None:
    run = job(tmp_path, {"training": {"epochs": 1, "max_steps": 7}})
    one, other = results(on_ranks(2, train_digits, env=environment(run, data="digits")))
    assert one["finished"]
    assert all(torch.equal(a, b) for a, b in zip(one["first"], other["first"], strict=True))
    assert all(torch.equal(a, b) for a, b in zip(one["last"], other["last"], strict=True))
    assert not torch.equal(one["first"][0], one["last"][0])
    assert not torch.equal(one["stream"], other["stream"])


def evaluate_digits(sources: list[str]) -> list[dict[str, float]]:
    config = recipe(training={"per_device_batch_size": 3})
    with joined(MINUTE) as world:
        torch.manual_seed(0)
        return [make_classifier(config, source=source, device=world.device).evaluate(world) for source in sources]


def test_each_validation_sample_counts_once_for_any_size_and_number_of_ranks(tmp_path: Path) -> None:
    sources: list[str] = []
    generator = np.random.default_rng(0)
    for held_out in (1, 2, 3, 7, 13):
        source = tmp_path / f"{held_out}.npz"
        np.savez(
            source,
            x_train=generator.random((20, 8, 8)),
            y_train=np.arange(20) % 6,
            x_test=generator.random((held_out, 8, 8)),
            y_test=np.arange(held_out) % 6,
        )
        sources.append(str(source))
    (alone,) = results(on_ranks(1, evaluate_digits, sources))
    for ranks in (2, 3):
        for measured in results(on_ranks(ranks, evaluate_digits, sources)):
            for ours, theirs in zip(measured, alone, strict=True):
                assert ours["val/accuracy"] == theirs["val/accuracy"]
                assert ours["val/accuracy_top5"] == theirs["val/accuracy_top5"]
                assert ours["val/loss"] == pytest.approx(theirs["val/loss"], rel=1e-12)
