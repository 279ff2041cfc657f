"""How often the ranks talk to one another for an evaluation and a checkpoint."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.trainer.ranks import environment, job, on_ranks, recipe, results
from tests.trainer.regression import Regression
import torchyard
from torchyard.contract.spec.spec import CheckpointPolicy
from trainer.parallel.tensors import broadcast
from trainer.train import Training
from trainer.world import joined

BROADCAST = torch.ops.c10d.broadcast_.default


class Broadcasts(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.count += func is BROADCAST
        return func(*args, **(kwargs or {}))


def evaluate_and_save(options: dict[str, Any]) -> tuple[int, bool]:
    """Trains for an epoch. Returns the broadcasts after the last step, and whether all ranks have rank 0's buffers."""
    config = recipe(training={"epochs": 1, "per_device_batch_size": 15}, ema={"decay": 0.5, "ramp": 0}, **options)
    run = torchyard.init()
    with joined(timedelta(minutes=1)) as world:
        task = Regression(*(nn.BatchNorm1d(5) for _ in range(10)), values=[0.5])
        training = Training(task, trainer="test", config=config, policy=CheckpointPolicy(), run=run, world=world)
        assert training.ema is not None
        with Broadcasts() as counted:
            before = 0
            step = training.train_step

            def counting(*arguments: Any, **named: Any) -> Any:
                nonlocal before
                done = step(*arguments, **named)
                before = counted.count
                return done

            training.train_step = counting
            training.train()
        buffers = dict(task.model.named_buffers())
        own = [*buffers.values(), *(training.ema.tensors[name] for name in buffers)]
        alike = all(torch.equal(ours, theirs) for ours, theirs in zip(own, world.from_rank_0(own), strict=True))
        run.close()
        return counted.count - before, alike


@pytest.mark.parametrize(
    "strategy",
    ["ddp", pytest.param("local_sgd", marks=pytest.mark.thorough), pytest.param("fsdp", marks=pytest.mark.thorough)],
)
def test_an_evaluation_and_its_checkpoint_broadcast_twice(tmp_path: Path, strategy: str) -> None:
    options = {"distributed": {"strategy": strategy}}
    run = job(tmp_path, {})
    for count, alike in results(on_ranks(2, evaluate_and_save, options, env=environment(run, data="digits"))):
        assert (count, alike) == (2, True)
    assert [path.name for path in run.checkpoints.iterdir()] == ["epoch-0001"]


def share(rank_values: list[list[Any]]) -> list[Any]:
    with joined(timedelta(minutes=1)) as world:
        values = rank_values[world.rank]
        tensors = [
            torch.tensor(values[0]),
            torch.tensor(values[1], dtype=torch.float64),
            torch.tensor(values[2], dtype=torch.bool),
            torch.tensor(values[3], dtype=torch.float16),
            torch.tensor(values[4]).to(memory_format=torch.channels_last),
            torch.tensor([]),
        ]
        broadcast(tensors)
        broadcast([])
        return [tensor.tolist() for tensor in tensors]


def test_a_broadcast_takes_tensors_of_any_type_and_shape() -> None:
    first = [7, [0.1, -0.0], [True, False, True], 0.5, [[[[1.0, 2.0]], [[3.0, 4.0]]]]]
    second = [0, [0.0, 1.0], [False, False, False], 0.0, [[[[0.0, 0.0]], [[0.0, 0.0]]]]]
    assert results(on_ranks(2, share, [first, second])) == [[*first, []]] * 2
