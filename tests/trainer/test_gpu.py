"""On a machine with GPUs (`make test-gpu`): the loop on CUDA and NCCL, with a rank for each GPU."""

from collections.abc import Mapping
from datetime import timedelta
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from tests.trainer.ranks import on_ranks, recipe, results
from torchyard.contract.spec import CheckpointPolicy
from torchyard.run import Run
from trainer.loop import Training
from trainer.meeting import EventTimer
from trainer.recipes import make_task
from trainer.window import Step
from trainer.world import joined

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU on this machine"),
]

RANKS = max(1, torch.cuda.device_count())
OPTIONS: list[dict[str, Any]] = [
    {},
    {"training": {"precision": "fp32", "channels_last": False}, "optimizer": {"name": "sgd", "clip_grad_norm": 1.0}},
    {"optimizer": {"clip_grad_norm": 1.0}, "distributed": {"comm_hook": "bf16"}},
    {"loss": {"mixup": 0.2}, "data": {"augment": ["hflip"]}, "distributed": {"sync_batchnorm": True}},
    {"distributed": {"comm_hook": "powersgd"}},
    {"distributed": {"strategy": "fsdp"}},
    {"distributed": {"strategy": "local_sgd"}},
    {"ema": {}, "optimizer": {"lookahead": {}, "clip_grad_norm": 1.0}},
    {"ema": {}, "training": {"precision": "fp16"}, "optimizer": {"name": "sgd", "clip_grad_norm": 1.0}},
    {"training": {"compile": True}},
]


def train(options: dict[str, Any]) -> tuple[str, float, int, list[list[float]]]:
    """Trains while waiting for the device between log lines is an error.

    Returns precision, loss, peak memory, and a few numbers of each tensor of the model.
    """
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
            # The first step of each layout allocates and compiles. PowerSGD draws matrices, and SyncBatchNorm waits.
            if number in {1, 7, 11} or (RANKS > 1 and config.distributed.sync_batchnorm):
                return step(number, *arguments, **named)
            torch.cuda.set_sync_debug_mode("error")
            try:
                return step(number, *arguments, **named)
            finally:
                torch.cuda.set_sync_debug_mode("default")

        training.learner.step = watched
        assert training.train()
        card = training.report.card
        state = task.model.state_dict().values()
        whole = [item.full_tensor() if isinstance(item, DTensor) else item for item in state]
        weights = [item.flatten()[:8].tolist() for item in whole]
        return card.precision, training.report.metrics["train/loss"], card.peak_memory_bytes or 0, weights


def timed_exchange() -> float:
    """Times an exchange by events. Waiting for the device meanwhile is an error."""
    device = torch.device("cuda", 0)
    torch.cuda.set_sync_debug_mode("error")
    try:
        timer = EventTimer(lambda: torch.Event(device, enable_timing=True))
        timer.arrive()
        numbers = torch.ones(1000, 1000, device=device)
        for _ in range(10):
            numbers = numbers @ numbers
        timer.leave()
        timer.take()  # whether it is done or not
        timer.arrive()
        timer.leave()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    return timer.take()


def test_an_exchange_is_timed_by_events_without_waiting() -> None:
    (seconds,) = results(on_ranks(1, timed_exchange))
    assert 0 <= seconds < 60


def _not_a_number(gradient: Tensor) -> Tensor:
    return gradient * math.nan


def poison(options: dict[str, Any]) -> tuple[bool, list[float]]:
    """Trains with a NaN gradient in steps 1 and 5. Returns whether all weights are finite, and norms."""
    config = recipe(**{**options, "training": {"epochs": 1, "max_steps": 8}, "logging": {"every_steps": 1}})
    norms: list[float] = []
    with joined(timedelta(minutes=2)) as world:
        task = make_task(config, source="digits", weights="none", device=world.device)
        training = Training(
            task,
            trainer="image-classification",
            config=config,
            policy=CheckpointPolicy(),
            run=Run({}),
            world=world,
        )
        loss = task.loss

        def poisoned(outputs: Tensor, targets: Any) -> Tensor:
            if training.position.step in {0, 4} and outputs.requires_grad:
                outputs.register_hook(_not_a_number)
            return loss(outputs, targets)

        vars(task)["loss"] = poisoned

        def log(values: Mapping[str, float], *, step: int) -> None:
            if "train/grad_norm" in values:
                norms.append(values["train/grad_norm"])

        training.run.log = log
        training.train()
        state = [item for moments in training.learner.optimizer.state.values() for item in moments.values()]
        tensors = [*task.model.parameters(), *(item for item in state if isinstance(item, Tensor))]
        return all(bool(tensor.isfinite().all()) for tensor in tensors), norms


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"optimizer": {"name": "sgd", "momentum": 0.9}},
        {"ema": {}, "optimizer": {"lookahead": {}, "clip_grad_norm": 1.0}},
        {"distributed": {"strategy": "fsdp"}},
        {"distributed": {"strategy": "fsdp"}, "optimizer": {"name": "sgd"}},
    ],
)
def test_a_nonfinite_step_is_skipped_on_the_device(options: dict[str, Any]) -> None:
    for finite, norms in results(on_ranks(RANKS, poison, options)):
        assert finite
        assert [math.isnan(norm) for norm in norms] == [step in {1, 5} for step in range(1, 9)]


@pytest.mark.parametrize("options", OPTIONS)
def test_no_step_waits_for_the_device(options: dict[str, Any]) -> None:
    ranks = results(on_ranks(RANKS, train, options))
    wanted = options.get("training", {}).get("precision", "bf16")
    for precision, loss, peak, weights in ranks:
        assert precision == wanted
        assert 0 < loss < 5
        assert peak > 2**20
        assert weights == ranks[0][3]
