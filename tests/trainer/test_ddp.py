"""Several ranks compute the same together as one process."""

from collections.abc import Sequence
from datetime import timedelta
import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributed import GradBucket  # pyright: ignore[reportPrivateImportUsage]
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from tests.trainer.ranks import environment, job, on_ranks, recipe, results
from tests.trainer.regression import SAMPLES, CountedRegression, Regression
from tests.trainer.runs import small_pictures
from torchyard.contract.recipes import ImageClassification
from torchyard.contract.spec.spec import CheckpointPolicy
from torchyard.run import Run
from trainer.__main__ import make_training, read_config
from trainer.recipes import make_task
from trainer.sampler import TrainSampler
from trainer.train import Training
from trainer.world import World, joined

MINUTE = timedelta(minutes=1)


def regression(batch: int, accumulate: int, **sections: Any) -> ImageClassification:
    return recipe(
        **{
            "training": {"epochs": 2, "per_device_batch_size": batch, "gradient_accumulation_steps": accumulate},
            "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0},
            "lr_scheduler": {"name": "constant"},
            "logging": {"every_steps": 2},
            **sections,
        }
    )


def training_of(
    task: Regression, config: ImageClassification, world: World, policy: CheckpointPolicy | None = None
) -> Training:
    return Training(task, trainer="test", config=config, policy=policy or CheckpointPolicy(), run=Run({}), world=world)


def weights_of(training: Training) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in training.task.model.parameters()]


def train_regression(batch: int, accumulate: int) -> tuple[list[Tensor], int, int]:
    """Returns the weights after two epochs, the optimizer steps and the number of all-reduces of the gradients."""
    reduced = 0

    def count(state: None, bucket: GradBucket) -> Future[Tensor]:
        nonlocal reduced
        reduced += bucket.is_last()
        return allreduce_hook(None, bucket)  # pyright: ignore[reportArgumentType] None is the default group

    with joined(MINUTE) as world:
        training = training_of(Regression(), regression(batch, accumulate), world)
        model = training.strategy.model
        assert isinstance(model, DistributedDataParallel) == (world.size > 1)
        if isinstance(model, DistributedDataParallel):
            model.register_comm_hook(None, count)
        training.train()
        return weights_of(training), training.position.step, reduced


def reference(task: Regression, global_batch: int) -> list[Tensor]:
    """Returns the weights after plain gradient descent on the mean over each step's samples."""
    for epoch in (1, 2):
        for samples in TrainSampler(SAMPLES, global_batch=global_batch, batch_size=global_batch, seed=42).steps(epoch):
            (micro_batch,) = samples.micro_batches
            task.model.zero_grad()
            task.loss(task.model(task.inputs[micro_batch.indices]), task.targets[micro_batch.indices]).backward()
            with torch.no_grad():
                for parameter in task.model.parameters():
                    assert parameter.grad is not None
                    parameter.sub_(parameter.grad, alpha=0.1)
    return [parameter.detach() for parameter in task.model.parameters()]


@pytest.mark.parametrize(
    ("ranks", "batch", "accumulate"),
    [
        (3, 2, 2),  # one process accumulates in the next test, too
        *(
            pytest.param(*shape, marks=pytest.mark.thorough)
            for shape in ((1, 8, 2), (1, 16, 1), (2, 8, 1), (2, 4, 2), (2, 3, 3))
        ),
    ],
)
def test_gradients_equal_those_of_one_process_on_the_joined_batch(ranks: int, batch: int, accumulate: int) -> None:
    # 30 samples: the last window of an epoch is shorter, and its micro-batches differ between ranks.
    global_batch = ranks * batch * accumulate
    expected = reference(Regression(), global_batch)
    for weights, steps, reduced in results(on_ranks(ranks, train_regression, batch, accumulate)):
        assert steps == 2 * -(-SAMPLES // global_batch)
        assert reduced == (steps if ranks > 1 else 0)
        for ours, theirs in zip(weights, expected, strict=True):
            assert torch.allclose(ours, theirs, rtol=0, atol=1e-13)


def train_counted(*shapes: tuple[int, int]) -> list[tuple[list[Tensor], list[float]]]:
    """Returns for each batch and accumulation the weights after two epochs, and the losses that are logged."""
    with joined(MINUTE) as world:
        return [_train_counted(*shape, world) for shape in shapes]


def _train_counted(batch: int, accumulate: int, world: World) -> tuple[list[Tensor], list[float]]:
    training = training_of(CountedRegression(), regression(batch, accumulate), world)
    logged: list[float] = []
    training.run.log = lambda metrics, step: logged.extend(  # pyright: ignore[reportAttributeAccessIssue]
        value for key, value in metrics.items() if key == "train/loss"
    )
    training.train()
    return weights_of(training), logged


@pytest.mark.parametrize(
    ("ranks", "shapes"), [(2, [(6, 1), (3, 2)]), pytest.param(3, [(4, 1)], marks=pytest.mark.thorough)]
)
def test_a_step_divides_by_what_the_samples_of_all_ranks_count(ranks: int, shapes: list[tuple[int, int]]) -> None:
    expected = reference(CountedRegression(), 12)
    (alone,) = results(on_ranks(1, train_counted, (12, 1), (4, 3)))
    together = results(on_ranks(ranks, train_counted, *shapes))
    _, whole = alone[0]
    assert len(set(whole)) == len(whole) > 2
    for weights, logged in itertools.chain(alone, *together):
        assert logged == pytest.approx(whole, rel=1e-12)
        for ours, theirs in zip(weights, expected, strict=True):
            assert torch.allclose(ours, theirs, rtol=0, atol=1e-13)


EVERYTHING: dict[str, Any] = {
    "optimizer": {"name": "adamw", "lr": 0.05, "clip_grad_norm": 0.5, "lookahead": {"every_steps": 2}},
    "lr_scheduler": {"name": "cosine", "warmup_steps": 2},
    "ema": {"decay": 0.9, "ramp": 3},
}


def train_with_everything(shapes: Sequence[tuple[int, int]]) -> list[list[Tensor]]:
    """Returns the weights and their averages after a training with each batch and accumulation."""
    found: list[list[Tensor]] = []
    with joined(MINUTE) as world:
        for batch, accumulate in shapes:
            training = training_of(Regression(), regression(batch, accumulate, **EVERYTHING), world)
            training.train()
            assert training.ema is not None
            found.append([*weights_of(training), *(item.clone() for item in training.ema.tensors.values())])
    return found


def test_weights_are_the_same_for_any_ranks_and_accumulation() -> None:
    ((alone,),) = results(on_ranks(1, train_with_everything, [(16, 1)]))
    for found in results(on_ranks(2, train_with_everything, [(8, 1), (4, 2)])):
        assert len(found) == 2
        for together in found:
            for ours, theirs in zip(alone, together, strict=True):
                assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)


def stop_early(values: Sequence[Sequence[float]]) -> tuple[int, int, float]:
    """Trains with `values[rank]` as the results of evaluations. Returns epochs, steps and the last learning rate."""
    with joined(MINUTE) as world:
        config = regression(
            8,
            1,
            training={"epochs": 9, "per_device_batch_size": 8},
            early_stopping={"patience": 2},
            lr_scheduler={"name": "plateau", "patience": 0, "gamma": 0.5},
        )
        training = training_of(Regression(values=values[world.rank]), config, world)
        assert training.train()
        return training.position.epoch - 1, training.position.step, training.optimizer.param_groups[0]["lr"]


def test_ranks_that_disagree_stop_at_rank_0s_step() -> None:
    # Rank 0 is best at epoch 2 and stops after epoch 4. Rank 1 would continue by its own values.
    values = [[3.0, 1.0, 2.0, 2.0, 0.0], [3.0, 2.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.01, 0.001]]
    assert results(on_ranks(2, stop_early, values)) == [(4, 8, 0.05), (4, 8, 0.05)]


def train_digits() -> dict[str, Any]:
    run = Run(os.environ)
    with joined(MINUTE) as world:
        training = make_training(run, config=read_config(run), world=world)
        first = weights_of(training)
        stream = torch.rand(4)
        finished = training.train()
        return {"first": first, "stream": stream, "last": weights_of(training), "finished": finished}


def test_ranks_keep_equal_weights_and_draw_different_random_numbers(tmp_path: Path) -> None:
    run = job(tmp_path / "run", {"training": {"epochs": 1, "max_steps": 4, "per_device_batch_size": 8}})
    data = small_pictures(tmp_path, val=20)
    one, other = results(on_ranks(2, train_digits, env=environment(run, data=data)))
    assert one["finished"]
    assert all(torch.equal(a, b) for a, b in zip(one["first"], other["first"], strict=True))
    assert all(torch.equal(a, b) for a, b in zip(one["last"], other["last"], strict=True))
    assert not torch.equal(one["first"][0], one["last"][0])
    assert not torch.equal(one["stream"], other["stream"])


def evaluate_digits(sources: list[str]) -> list[dict[str, float]]:
    config = recipe(training={"per_device_batch_size": 3})
    with joined(MINUTE) as world:
        torch.manual_seed(0)
        return [
            make_task(config, source=source, weights="none", device=world.device)
            .evaluate(world, on_batch=lambda: None)
            .metrics
            for source in sources
        ]


@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.thorough), 3])
def test_each_validation_sample_counts_once_for_any_size_and_number_of_ranks(tmp_path: Path, ranks: int) -> None:
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
    for measured in results(on_ranks(ranks, evaluate_digits, sources)):
        for ours, theirs in zip(measured, alone, strict=True):
            assert ours["val/accuracy"] == theirs["val/accuracy"]
            assert ours["val/accuracy_top5"] == theirs["val/accuracy_top5"]
            assert ours["val/loss"] == pytest.approx(theirs["val/loss"], rel=1e-12)
