"""A step with a nonfinite loss or gradient changes nothing, and the other steps' metrics are right."""

from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from tests.approved import Approved
from tests.trainer.ranks import on_ranks, recipe, results
from tests.trainer.regression import SAMPLES, Regression
from torchyard.contract.errors import NonFiniteLoss
from torchyard.contract.spec.spec import CheckpointPolicy
from torchyard.run import Run
from trainer.metrics import Step
from trainer.optimization import make_optimizer
from trainer.sampler import TrainSampler
from trainer.train import Training
from trainer.world import World, joined

MINUTE = timedelta(minutes=1)
GLOBAL_BATCH, EPOCHS = 16, 3
STEPS = 6
"""Steps of a run: two an epoch, the second of them with a shorter window."""
WARMUP = 10
AT_THE_END = CheckpointPolicy(every_epochs=EPOCHS)
DECAY = 0.5


class Poisoned(Regression):
    """A task whose gradient is NaN in the micro-batches `at`, counted from 1, with a finite loss."""

    def __init__(self, at: Collection[int], *, loss: bool = False) -> None:
        super().__init__()
        self._at, self._loss, self._calls = at, loss, 0

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self._calls += 1
        loss = super().loss(outputs, targets)
        if self._calls not in self._at:
            return loss
        if self._loss:  # and the gradient is finite
            return loss + math.inf
        outputs.register_hook(_not_a_number)
        return loss


def _not_a_number(gradient: Tensor) -> Tensor:
    return gradient * math.nan


def config_of(case: Mapping[str, Any], *, ranks: int) -> Any:
    batch = GLOBAL_BATCH // ranks // case.get("accumulate", 1)
    return recipe(
        training={
            "epochs": EPOCHS,
            "per_device_batch_size": batch,
            "gradient_accumulation_steps": case.get("accumulate", 1),
            "precision": case.get("precision", "fp32"),
            "max_nonfinite_steps": case.get("max_nonfinite_steps", 3),
        },
        optimizer={"lr": 0.1, "weight_decay": 0.1, **case.get("optimizer", {})},
        lr_scheduler={"name": "constant", "warmup_steps": WARMUP},
        ema={"decay": DECAY, "ramp": 0} if case.get("ema") else None,
        distributed=case.get("distributed", {}),
        logging={"every_steps": case.get("every_steps", 1)},
    )


def train(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Trains each case and returns its end. Only rank `rank` has nonfinite gradients, in its micro-batches `at`."""
    found: list[dict[str, Any]] = []
    with joined(MINUTE) as world:
        for case in cases:
            task = Poisoned(case["at"] if world.rank == world.size - 1 else (), loss=case.get("loss", False))
            config = config_of(case, ranks=world.size)
            training = Training(task, trainer="test", config=config, policy=AT_THE_END, run=Run({}), world=world)
            norms: dict[int, float] = {}
            rates: dict[int, float] = {}

            def log(
                values: Mapping[str, Any], *, step: int, norms: dict[int, float] = norms, rates: Any = rates
            ) -> None:
                if "train/grad_norm" in values:
                    norms[step], rates[step] = values["train/grad_norm"], values["train/lr"]

            training.run.log = log
            error: str | None = None
            try:
                training.train()
            except NonFiniteLoss as failure:
                error = failure.message
            found.append(
                {
                    "weights": whole(dict(task.model.named_parameters())),
                    "ema": whole(training.ema.tensors) if training.ema else [],
                    "norms": norms,
                    "rates": rates,
                    "step": training.position.step,
                    "error": error,
                }
            )
    return found


def whole(tensors: Mapping[str, Tensor]) -> list[Tensor]:
    """Returns whole copies. A collective with shards."""
    full = [item.full_tensor() if isinstance(item, DTensor) else item for item in tensors.values()]
    return [item.detach().clone() for item in full]


def by_hand(case: Mapping[str, Any], *, skipped: Collection[int]) -> dict[str, Any]:
    """Trains in one process on the joined batches with plain PyTorch, without the steps `skipped`."""
    task, config = Regression(), config_of(case, ranks=1)
    optimizer = make_optimizer(task.model, config.optimizer, lr=0.1, device=torch.device("cpu"))
    averages = whole(dict(task.model.named_parameters()))
    norms: dict[int, float] = {}
    rates: dict[int, float] = {}
    for step, indices in enumerate(batches(), start=1):
        rates[step] = 0.1 * step / WARMUP
        for group in optimizer.param_groups:
            group["lr"] = rates[step]
        optimizer.zero_grad()
        task.loss(task.model(task.inputs[indices]), task.targets[indices]).backward()
        norms[step] = math.sqrt(
            sum(float(item.grad.square().sum()) for item in task.model.parameters() if item.grad is not None)
        )
        if step in skipped:
            norms[step] = math.nan
            continue
        if config.optimizer.clip_grad_norm is not None:
            nn.utils.clip_grad_norm_(task.model.parameters(), config.optimizer.clip_grad_norm)
        optimizer.step()
        for kept, live in zip(averages, task.model.parameters(), strict=True):
            kept.lerp_(live.detach(), 1 - DECAY)
    return {
        "weights": whole(dict(task.model.named_parameters())),
        "ema": averages if case.get("ema") else [],
        "norms": norms,
        "rates": rates,
    }


def batches() -> Iterator[Tensor]:
    sampler = TrainSampler(SAMPLES, global_batch=GLOBAL_BATCH, batch_size=GLOBAL_BATCH, seed=42)
    for epoch in range(1, EPOCHS + 1):
        for samples in sampler.steps(epoch):
            yield samples.micro_batches[0].indices


def check(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    for key in ("weights", "ema"):
        assert len(found[key]) == len(expected[key])
        for ours, theirs in zip(found[key], expected[key], strict=True):
            assert torch.allclose(ours, theirs, rtol=0, atol=1e-10)
    assert found["norms"] == pytest.approx(expected["norms"], rel=1e-10, nan_ok=True)
    assert found["rates"] == pytest.approx(expected["rates"])
    assert (found["step"], found["error"]) == (STEPS, None)


SGD: dict[str, Any] = {"name": "sgd", "momentum": 0.9}
ADAMW: dict[str, Any] = {"name": "adamw"}
SKIPPING: list[dict[str, Any]] = [
    {"at": [5], "optimizer": SGD},
    {"at": [5], "optimizer": ADAMW},
    {"at": [2, 6], "optimizer": SGD},  # the last window of an epoch, and of the run
    {"at": [2, 6], "optimizer": ADAMW},
    {"at": [1, 5], "optimizer": {**SGD, "fused": True}},  # the device skips the step, even the first one
    {"at": [1, 5], "optimizer": {**ADAMW, "fused": True}},
    {"at": [2, 5], "optimizer": SGD, "ema": True},
    {"at": [2, 5], "optimizer": {**ADAMW, "fused": True, "clip_grad_norm": 0.5}, "ema": True},
    {"at": [5], "optimizer": {"name": "rmsprop", "momentum": 0.5}},
    {"at": [5], "optimizer": SGD, "loss": True},
]
SHARDED: dict[str, Any] = {"at": [5], "distributed": {"strategy": "fsdp"}}
SHARDS: list[dict[str, Any]] = [
    {**SHARDED, "optimizer": SGD, "ema": True},
    {**SHARDED, "optimizer": {**ADAMW, "fused": True}},
]


@pytest.mark.parametrize(
    ("ranks", "cases"),
    [
        (2, [*SKIPPING, SHARDS[0]]),
        pytest.param(1, SKIPPING, marks=pytest.mark.thorough),
        pytest.param(2, SHARDS, marks=pytest.mark.thorough),
    ],
    ids=["two ranks", "one rank", "shards"],
)
def test_a_nonfinite_step_changes_nothing(ranks: int, cases: list[dict[str, Any]]) -> None:
    for found in results(on_ranks(ranks, train, cases)):
        for case, outcome in zip(cases, found, strict=True):
            check(outcome, by_hand(case, skipped=case["at"]))


MEASURED: list[dict[str, Any]] = [
    {"at": [], "optimizer": SGD},
    {"at": [], "optimizer": SGD, "accumulate": 2},
    {"at": [], "optimizer": {**ADAMW, "clip_grad_norm": 0.01}, "accumulate": 2},
    {"at": [], "optimizer": SGD, "precision": "fp16"},
    {"at": [], "optimizer": {**SGD, "clip_grad_norm": 0.01}, "precision": "fp16"},
]
MEASURED_IN_SHARDS: list[dict[str, Any]] = [
    {"at": [], "optimizer": {**SGD, "clip_grad_norm": 0.01}, "distributed": {"strategy": "fsdp"}}
]


@pytest.mark.parametrize(
    "cases",
    [MEASURED, pytest.param(MEASURED_IN_SHARDS, marks=pytest.mark.thorough)],  # test_strategies.py clips shards
    ids=["whole", "shards"],
)
def test_the_logged_norm_is_of_the_joined_batchs_gradient_before_clipping(cases: list[dict[str, Any]]) -> None:
    for found in results(on_ranks(2, train, cases)):
        for case, outcome in zip(cases, found, strict=True):
            check(outcome, by_hand(case, skipped=()))


def test_too_many_nonfinite_steps_in_a_row_fail_every_rank(approved: Approved) -> None:
    cases: list[dict[str, Any]] = [
        {"at": [2, 3], "optimizer": SGD, "max_nonfinite_steps": 2},
        {"at": [2, 3], "optimizer": {**ADAMW, "fused": True}, "max_nonfinite_steps": 2},
        {"at": [2, 4], "optimizer": SGD, "max_nonfinite_steps": 2},
        {
            "at": [5, 6],
            "optimizer": SGD,
            "max_nonfinite_steps": 2,
            "every_steps": 100,
        },  # reported at the end of the epoch
    ]
    for found in results(on_ranks(2, train, cases)):
        said = [outcome["error"] or "" for outcome in found]
        assert said[0] == approved("said")
        assert said[1] == approved("gradient norm was")
        assert said[2] == ""
        assert said[3] == approved("gradient norm nan")


SKIPPED_UNSEEN: list[dict[str, Any]] = [
    {"at": [1], "optimizer": {**ADAMW, "fused": True}},
    {"at": [1], "optimizer": {**SGD, "fused": True}, "ema": True},
    {"at": [1], "optimizer": SGD},
    {"at": [1], "optimizer": {**SGD, "fused": True}, "precision": "fp16"},
]


@pytest.mark.parametrize("every_steps", [pytest.param(2, marks=pytest.mark.thorough), 100])
def test_the_weights_do_not_depend_on_when_skipped_steps_are_read(every_steps: int) -> None:
    cases = SKIPPED_UNSEEN + [{**case, "every_steps": every_steps} for case in SKIPPED_UNSEEN]
    (found,) = results(on_ranks(1, train, cases))
    often, seldom = found[: len(SKIPPED_UNSEEN)], found[len(SKIPPED_UNSEEN) :]
    for one, other in zip(often, seldom, strict=True):
        for key in ("weights", "ema"):
            assert all(torch.equal(ours, theirs) for ours, theirs in zip(one[key], other[key], strict=True))
        assert one["rates"] == pytest.approx({step: 0.01 * step for step in range(1, STEPS + 1)})


def test_an_overflow_in_fp16_is_skipped_and_not_counted() -> None:
    case: dict[str, Any] = {"at": [1, 2, 3], "optimizer": SGD, "precision": "fp16", "max_nonfinite_steps": 1}
    for (found,) in results(on_ranks(2, train, [case])):
        check({**found, "norms": {}}, {**by_hand(case, skipped=case["at"]), "norms": {}})


def train_alone(optimizer: dict[str, Any]) -> list[list[Tensor]]:
    """Trains ranks that synchronize only at the end of an epoch, for the two steps of one: twice.

    The second time rank 1 skips step 2.
    """
    with joined(MINUTE) as world:
        return [_train_alone(optimizer, at if world.rank == 1 else (), world) for at in ((), (2,))]


def _train_alone(optimizer: dict[str, Any], at: Collection[int], world: World) -> list[Tensor]:
    distributed = {"strategy": "local_sgd", "local_sgd": {"period": 100}}
    config = config_of({"optimizer": optimizer, "ema": True, "distributed": distributed}, ranks=2)
    task = Poisoned(at)
    training = Training(task, trainer="test", config=config, policy=AT_THE_END, run=Run({}), world=world)
    kept: list[list[Tensor]] = []
    assert training.ema is not None
    step, average = training.train_step, training.ema.tensors

    def watched(number: int, *arguments: Any, **named: Any) -> Step:
        done = step(number, *arguments, **named)
        kept.append(whole({**dict(task.model.named_parameters()), **{f"ema.{key}": average[key] for key in average}}))
        return done

    training.train_step = watched
    training.train()
    return kept[1]


@pytest.mark.parametrize("fused", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_a_rank_that_trains_alone_skips_its_own_nonfinite_step(fused: bool) -> None:
    optimizer = {**SGD, "fused": fused}
    (untroubled, beside), (same, troubled) = results(on_ranks(2, train_alone, optimizer))
    assert all(torch.equal(one, other) for one, other in zip(untroubled, beside, strict=True))
    assert not all(torch.equal(one, other) for one, other in zip(same, troubled, strict=True))
    assert all(bool(item.isfinite().all()) for item in troubled)
