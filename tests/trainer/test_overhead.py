"""A step costs little more than one of a loop by hand that also has the gradient norm and skips non-finite steps.

That loop does not put back what the forward pass of a skipped step has done to batch norms: it takes two operations.

Counted are the calls of operations and of Python functions, which no other load of the machine changes.
"""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
import sys
from typing import Any, TypeAlias

import pytest
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer

from bench.counting import Operations, PythonCalls
from tests.trainer.ranks import environment, job, on_ranks, recipe, results
import torchyard
from torchyard.contract.recipes import ImageClassification
from torchyard.contract.spec.spec import CheckpointPolicy
from trainer.data.images import InMemory
from trainer.optimization import make_optimizer
from trainer.recipes import make_task
from trainer.recipes.classification import Classifier
from trainer.sampler import TrainSampler
from trainer.train import Training
from trainer.world import World, joined

MORE_OPERATIONS, MORE_PYTHON_CALLS = 12, 150
"""Of each step. Five operations keep the statistics of batch norms, and restore them if the step is skipped."""
BATCH, LOG_EVERY = 16, 10
FIRST, COUNTED = 10, 10
"""The steps before those that are counted, and how many are. Both end at a log line."""
SGD: dict[str, Any] = {"name": "sgd", "momentum": 0.9}
ADAMW: dict[str, Any] = {"name": "adamw", "weight_decay": 0.1}
FUSED = {**ADAMW, "fused": True}


Counter: TypeAlias = Operations | PythonCalls


class Steps:
    """Counts the calls from the end of step FIRST to the end of step FIRST + COUNTED."""

    def __init__(self, counter: Counter) -> None:
        self.counter = counter
        self.per_step = 0.0
        self._done = 0
        self._before = 0

    def end(self) -> None:
        self._done += 1
        if self._done == FIRST:
            self._before = self.counter.count
        elif self._done == FIRST + COUNTED:
            self.per_step = (self.counter.count - self._before) / COUNTED


def ours(config: ImageClassification, task: Classifier, world: World, steps: Steps) -> None:
    run = torchyard.init()
    training = Training(
        task, trainer="image-classification", config=config, policy=CheckpointPolicy(), run=run, world=world
    )
    should_stop = run.should_stop

    def stop() -> bool:
        stops = should_stop()
        steps.end()
        return stops

    run.should_stop = stop
    with steps.counter:
        training.train()
    run.close()


def by_hand(config: ImageClassification, task: Classifier, world: World, steps: Steps) -> None:
    model = DistributedDataParallel(task.model, gradient_as_bucket_view=True, broadcast_buffers=False)
    optimizer = make_optimizer(task.model, config.optimizer, lr=0.1, device=world.device)
    sampler = TrainSampler(
        task.samples, global_batch=BATCH * world.size, batch_size=BATCH, world_size=world.size, rank=world.rank
    )
    plan = [samples.micro_batches[0].indices for samples in sampler.steps(1)]
    data = task.data.train
    assert isinstance(data, InMemory)
    take_step = by_hand_on_device if config.optimizer.fused is True else by_hand_on_host
    with steps.counter:
        for step, batch in enumerate(plan, start=1):
            loss = cross_entropy(model(task.normalizer(data.pictures[batch])), data.labels[batch])
            loss.backward()
            take_step(optimizer, get_total_norm([item.grad for item in model.parameters() if item.grad is not None]))
            optimizer.zero_grad(set_to_none=True)
            if step % LOG_EVERY == 0:
                sys.stderr.write(f"step {step} loss {loss.item():.4f}\n")
            steps.end()


def by_hand_on_host(optimizer: Optimizer, norm: Any) -> None:
    if norm.isfinite():
        optimizer.step()


def by_hand_on_device(optimizer: Any, norm: Any) -> None:
    optimizer.grad_scale, optimizer.found_inf = None, norm.isfinite().logical_not().float()
    optimizer.step()


def count(train: Callable[..., None], optimizers: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """Returns the operations and the Python calls of a step with each optimizer."""
    found: list[tuple[float, float]] = []
    with joined(timedelta(minutes=1)) as world:
        for optimizer in optimizers:
            config = recipe(
                training={"epochs": 1, "per_device_batch_size": BATCH, "max_steps": FIRST + COUNTED + 1},
                optimizer=optimizer,
                logging={"every_steps": LOG_EVERY},
            )
            both: list[float] = []
            for counter in (Operations(), PythonCalls()):
                task, steps = make_task(config, source="digits", weights="none", device=world.device), Steps(counter)
                assert isinstance(task, Classifier)
                train(config, task, world, steps)
                both.append(steps.per_step)
            found.append((both[0], both[1]))
    return found


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("ranks", "optimizers"),
    [
        (2, [SGD, FUSED]),
        (2, [ADAMW]),
        (1, [SGD, ADAMW, FUSED]),
    ],
)
def test_a_step_makes_few_calls_more_than_one_by_hand(
    tmp_path: Path, ranks: int, optimizers: list[dict[str, Any]]
) -> None:
    env = environment(job(tmp_path, {}), data="digits")
    measured = results(on_ranks(ranks, count, ours, optimizers, env=env))
    expected = results(on_ranks(ranks, count, by_hand, optimizers))
    for own, others in zip(measured, expected, strict=True):
        for (operations, calls), (fewer_operations, fewer_calls) in zip(own, others, strict=True):
            assert fewer_operations > 0 and fewer_calls > 0
            assert operations - fewer_operations <= MORE_OPERATIONS
            assert calls - fewer_calls <= MORE_PYTHON_CALLS
