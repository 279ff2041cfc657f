"""On a machine with GPUs (`make test-gpu`): the loop on CUDA and NCCL, with a rank for each GPU."""

from collections.abc import Collection, Mapping
from datetime import timedelta
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from tests.trainer import language
from tests.trainer.bases import tiny_base
from tests.trainer.ranks import on_ranks, recipe, results
from torchyard.contract.spec.spec import CheckpointPolicy
from torchyard.models.base import load_model, open_base
from torchyard.run import Run
from trainer.meeting import EventTimer
from trainer.metrics import Step
from trainer.recipes import make_task
from trainer.train import Training
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
        # The first step of each layout allocates and compiles. PowerSGD draws matrices, and SyncBatchNorm waits.
        waits = RANKS > 1 and config.distributed.sync_batchnorm
        forbid_waits(training, but=range(13) if waits else (1, 7, 11))
        assert training.train()
        card = training.report.card
        state = task.model.state_dict().values()
        whole = [item.full_tensor() if isinstance(item, DTensor) else item for item in state]
        weights = [item.flatten()[:8].tolist() for item in whole]
        return card.precision, training.report.metrics["train/loss"], card.peak_memory_bytes or 0, weights


def forbid_waits(training: Training, *, but: Collection[int]) -> None:
    """Makes it an error that a step waits for the device, except for the steps `but`."""
    step = training.train_step

    def watched(number: int, *arguments: Any, **named: Any) -> Step:
        if number in but:
            return step(number, *arguments, **named)
        torch.cuda.set_sync_debug_mode("error")
        try:
            return step(number, *arguments, **named)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    training.train_step = watched


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
        state = [item for moments in training.optimizer.state.values() for item in moments.values()]
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


LANGUAGE_OPTIONS: list[dict[str, Any]] = [
    {},
    {"training": {"activation_checkpointing": True}, "distributed": {"strategy": "fsdp"}},
    {"model": {"method": "full"}, "distributed": {"strategy": "fsdp"}},
    {"model": {"attention": "flex"}},
]


def tune(base: Path, data: Path, options: dict[str, Any]) -> tuple[str, float, float]:
    """Tunes a language model. Returns precision, loss and tokens per second."""
    sizes = {"max_steps": 12, "epochs": 12, "per_device_batch_size": 1, "precision": "auto"}
    changes = {**options, "training": {**sizes, **options.get("training", {})}, "logging": {"every_steps": 6}}
    config = language.recipe(base, data, **changes)
    with joined(timedelta(minutes=2)) as world:
        torch.manual_seed(0)
        task = make_task(config, source=str(data), device=world.device)
        run = Run({})
        training = Training(task, trainer="causal-lm", config=config, policy=CheckpointPolicy(), run=run, world=world)
        # FlexAttention compiles kernels in the first steps, and again for each sequence length.
        forbid_waits(training, but=range(13) if config.model.attention == "flex" else (1, 7))
        logged: dict[str, Any] = {}

        def note(values: Mapping[str, Any], *, step: int) -> None:
            logged.update(values)

        run.log = note
        assert training.train()
        return training.report.card.precision, logged["train/loss"], logged["train/tokens_per_second"]


@pytest.mark.parametrize("options", LANGUAGE_OPTIONS)
def test_a_language_model_is_tuned_without_waiting(tmp_path: Path, options: dict[str, Any]) -> None:
    base = tiny_base(tmp_path / "tiny", hidden_size=64, num_key_value_heads=2)
    data = language.prompts(tmp_path / "data.jsonl", count=100)
    for precision, loss, speed in results(on_ranks(RANKS, tune, base, data, options)):
        assert precision == "bf16"
        assert 0 < loss < 6
        print(f"{options}: {speed:.0f} tokens/s")  # noqa: T201 a figure to note


@pytest.mark.parametrize("attention", ["sdpa", "eager", "flex"])
def test_packed_documents_do_not_see_each_other_on_a_gpu(tmp_path: Path, attention: str) -> None:
    base = tiny_base(tmp_path / "tiny", hidden_size=64, num_key_value_heads=2)
    model = load_model(open_base(base), attention=attention, device="cuda")
    documents = [torch.randint(3, 300, (length,), device="cuda") for length in (40, 24, 64)]
    ids = torch.cat(documents)[None]
    positions = torch.cat([torch.arange(len(document), device="cuda") for document in documents])[None]
    with torch.no_grad():
        packed: Tensor = model(input_ids=ids, position_ids=positions, use_cache=False).logits[0]
        alone = [model(input_ids=document[None], use_cache=False).logits[0] for document in documents]
    assert torch.allclose(packed, torch.cat(alone), rtol=0, atol=1e-3)
