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
from torchyard.contract.spec.spec import CheckpointPolicy
from torchyard.run import Run
from trainer.recipes import make_task
from trainer.train import Training
from trainer.world import joined

FETCH = torch.ops.aten._local_scalar_dense.default


class Fetches(TorchDispatchMode):
    """Counts the copies to the host by `item()`, `float(tensor)` and `bool(tensor)`."""

    count = 0

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.count += func is FETCH
        return func(*args, **(kwargs or {}))


def fetches(options: dict[str, Any]) -> dict[int, int]:
    """Returns the copies to the host within each of seven steps. The last one logs. Under 0: one copy, as a control."""
    config = recipe(
        **{
            **options,
            "training": {
                "per_device_batch_size": 16,
                "gradient_accumulation_steps": 2,
                "max_steps": 7,
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
    with joined(timedelta(minutes=1)) as world:
        task = make_task(config, source="digits", weights="none", device=world.device)
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


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.thorough),
        pytest.param(
            {"optimizer": {"clip_grad_norm": 1.0}, "distributed": {"sync_batchnorm": True, "comm_hook": "bf16"}},
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            {"distributed": {"strategy": "fsdp"}, "optimizer": {"clip_grad_norm": 1.0}}, marks=pytest.mark.thorough
        ),
        pytest.param(
            {"optimizer": {"clip_grad_norm": 1.0, "lookahead": {}}, "ema": {}, "distributed": {"comm_hook": "bf16"}},
            marks=pytest.mark.thorough,
        ),
        {"training": {"precision": "fp16"}, "optimizer": {"clip_grad_norm": 1.0}, "ema": {}},
        pytest.param({"distributed": {"strategy": "local_sgd"}}, marks=pytest.mark.thorough),
    ],
)
def test_no_step_fetches_a_number(options: dict[str, Any]) -> None:
    for found in results(on_ranks(2, fetches, options)):
        assert found == {0: 1, **dict.fromkeys(range(1, 8), 0)}


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"optimizer": {"name": "sgd", "fused": False}}, marks=pytest.mark.thorough),
        {"training": {"precision": "fp16"}, "optimizer": {"name": "sgd", "fused": False}, "ema": {}},
    ],
)
def test_an_optimizer_that_is_not_fused_fetches_one_number_a_step(
    options: dict[str, Any],
) -> None:
    for found in results(on_ranks(2, fetches, options)):
        assert found == {0: 1, **dict.fromkeys(range(1, 8), 1)}
