"""Nothing waits for the device between two log lines, unless the host has to skip a step.

On a GPU `set_sync_debug_mode` says the same of every operation (tests/trainer/test_gpu.py). What is drawn on the host
by design (mixup, augmentation) is left out here, where the host is the device.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.trainer.ranks import on_ranks, recipe, results
from tests.trainer.runs import small_pictures
from torchyard.contract.spec.spec import CheckpointPolicy
from torchyard.run import Run
from trainer.recipes import make_task
from trainer.train import Training
from trainer.world import World, joined

FETCH = torch.ops.aten._local_scalar_dense.default


class Fetches(TorchDispatchMode):
    """Counts the copies to the host by `item()`, `float(tensor)` and `bool(tensor)`."""

    count = 0

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.count += func is FETCH
        return func(*args, **(kwargs or {}))


STEPS = 3


def fetches(source: str, *cases: dict[str, Any]) -> list[dict[int, int]]:
    """Returns for each case the copies to the host within each step. The last one logs. Under 0: one, as a control."""
    with joined(timedelta(minutes=1)) as world:
        return [_fetches(source, options, world) for options in cases]


def _fetches(source: str, options: dict[str, Any], world: World) -> dict[int, int]:
    config = recipe(
        **{
            **options,
            "training": {
                "per_device_batch_size": 8,
                "gradient_accumulation_steps": 2,
                "max_steps": STEPS,
                "epochs": 1,
                **options.get("training", {}),
            },
            "logging": {"every_steps": 100},
            "optimizer": {
                "fused": True,
                **options.get("optimizer", {}),
            },  # as on CUDA; else its step counts are fetched
        }
    )
    task = make_task(config, source=source, weights="none", device=world.device)
    training = Training(
        task, trainer="image-classification", config=config, policy=CheckpointPolicy(), run=Run({}), world=world
    )
    found: dict[int, int] = {}
    with Fetches() as counter:
        float(torch.ones(()))
        before = 0

        def progress(**_: object) -> None:
            nonlocal before
            found.setdefault(training.position.step, counter.count - before)
            before = counter.count

        training.run.progress = progress
        training.train()
    return found


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_pictures(tmp_path_factory.mktemp("data"), train=32 * STEPS, val=8)


def fetched(number: int) -> dict[int, int]:
    return {0: 1, **dict.fromkeys(range(1, STEPS + 1), number)}


HALF: dict[str, Any] = {"training": {"precision": "fp16"}, "ema": {}}


def test_no_step_fetches_a_number_but_one_where_the_optimizer_is_not_fused(source: str) -> None:
    cases = [{**HALF, "optimizer": {"clip_grad_norm": 1.0}}, {**HALF, "optimizer": {"name": "sgd", "fused": False}}]
    assert results(on_ranks(2, fetches, source, *cases)) == [[fetched(0), fetched(1)]] * 2


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "number"),
    [
        ({}, 0),
        ({"optimizer": {"clip_grad_norm": 1.0}, "distributed": {"sync_batchnorm": True, "comm_hook": "bf16"}}, 0),
        ({"distributed": {"strategy": "fsdp"}, "optimizer": {"clip_grad_norm": 1.0}}, 0),
        ({"optimizer": {"clip_grad_norm": 1.0, "lookahead": {}}, "ema": {}, "distributed": {"comm_hook": "bf16"}}, 0),
        ({"distributed": {"strategy": "local_sgd", "local_sgd": {"warmup_steps": 1, "period": 2}}}, 0),
        ({"optimizer": {"name": "sgd", "fused": False}}, 1),
    ],
)
def test_a_step_fetches_as_many_numbers_with_other_options(source: str, options: dict[str, Any], number: int) -> None:
    assert results(on_ranks(2, fetches, source, options)) == [[fetched(number)]] * 2
