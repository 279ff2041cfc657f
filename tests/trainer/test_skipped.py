"""A step that is skipped changes nothing on any rank: not what its forward pass has changed, either."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from tests.trainer.ranks import on_ranks, recipe, results
from tests.trainer.regression import Regression
from torchyard.contract.spec.spec import CheckpointPolicy
from torchyard.run import Run
from trainer.data.batch import Batch
from trainer.score import Iou
from trainer.train import Training
from trainer.world import World, joined

SKIPPED = 2
"""The step of which the last rank's samples are NaN."""
CASES: list[dict[str, Any]] = [
    {},
    {"distributed": {"sync_batchnorm": True}, "optimizer": {"fused": True}},
    {"distributed": {"strategy": "local_sgd", "local_sgd": {"period": 100}}},
    {"ema": {"decay": 0.5, "ramp": 0, "device": "cpu"}, "optimizer": {"fused": True, "lookahead": {"every_steps": 2}}},
]
SHARDED: dict[str, Any] = {"distributed": {"strategy": "fsdp"}, "ema": {"decay": 0.5, "ramp": 0}}


class Spoilt(Regression):
    """A regression through a batch norm, which scores what is positive. Samples of one batch may be NaN."""

    def __init__(self, *, spoils: bool) -> None:
        super().__init__(nn.BatchNorm1d(5))
        self.score = Iou(cut=0.0, device=torch.device("cpu"))
        self._spoils = spoils

    def training_batches(self, plan: Sequence[Tensor], *, epoch: int) -> Iterator[Batch]:
        for step, batch in enumerate(super().training_batches(plan, epoch=epoch), start=1):
            spoilt = self._spoils and step == SKIPPED
            yield Batch(batch.inputs * math.nan, batch.targets) if spoilt else batch


def train(cases: Sequence[Mapping[str, Any]]) -> list[tuple[list[str], list[dict[str, float]]]]:
    """Returns for each case what the skipped step has changed on this rank, and its log lines."""
    with joined(timedelta(minutes=1)) as world:
        return [_train(case, world) for case in cases]


def _train(case: Mapping[str, Any], world: World) -> tuple[list[str], list[dict[str, float]]]:
    config = recipe(
        training={"epochs": 1, "max_steps": 3, "per_device_batch_size": 4},
        lr_scheduler={"warmup_steps": 0},
        **{"logging": {"every_steps": 1}, **case, "optimizer": {"name": "adamw", **case.get("optimizer", {})}},
    )
    task = Spoilt(spoils=world.rank == world.size - 1)
    training = Training(task, trainer="test", config=config, policy=CheckpointPolicy(), run=Run({}), world=world)
    logged: list[dict[str, float]] = []
    training.run.log = lambda values, *, step: logged.append(dict(values))  # pyright: ignore[reportAttributeAccessIssue]
    step, changed = training.train_step, list[str]()

    def watched(number: int, *arguments: Any, **named: Any) -> Any:
        before = _tensors(training)
        done = step(number, *arguments, **named)
        after = _tensors(training)
        if number == SKIPPED:
            changed.extend(name for name, tensor in after.items() if not torch.equal(before[name], tensor))
        else:
            assert any(not torch.equal(before[name], after[name]) for name in after if "running_mean" in name)
        return done

    training.train_step = watched
    training.train()
    assert all(bool(tensor.isfinite().all()) for tensor in _tensors(training).values())
    return changed, [values for values in logged if "train/loss" in values]


def _tensors(training: Training) -> dict[str, Tensor]:
    moments = {
        f"{key} {index}": moment
        for index, state in enumerate(training.optimizer.state.values())
        for key, moment in state.items()
    }
    averages = {f"average {name}": tensor for name, tensor in (training.ema.tensors if training.ema else {}).items()}
    slow = {
        f"slow {name}": tensor for name, tensor in (training.lookahead.tensors if training.lookahead else {}).items()
    }
    tensors = {**training.task.model.state_dict(), **moments, **averages, **slow}
    return {name: (item.to_local() if isinstance(item, DTensor) else item).clone() for name, item in tensors.items()}


@pytest.mark.parametrize(
    "cases",
    [CASES, pytest.param([SHARDED], marks=pytest.mark.thorough)],  # test_nonfinite.py skips a step of shards
    ids=["whole", "shards"],
)
def test_a_skipped_step_changes_no_weight_moment_average_or_statistic_on_any_rank(cases: list[dict[str, Any]]) -> None:
    for rank, found in enumerate(results(on_ranks(2, train, cases))):
        for case, (changed, _) in zip(cases, found, strict=True):
            trains_alone = case.get("distributed", {}).get("strategy") == "local_sgd" and rank == 0
            assert bool(changed) is trains_alone, (case, changed)


def test_a_skipped_step_counts_neither_in_the_loss_nor_in_the_score() -> None:
    for (_, each), (_, both) in results(on_ranks(2, train, [{}, {"logging": {"every_steps": 2}}])):
        assert [math.isfinite(line["train/loss"]) for line in each] == [True, False, True]
        assert [math.isfinite(line["train/iou"]) for line in each] == [True, False, True]
        assert 0 < each[0]["train/iou"] < 1
        for key in ("train/loss", "train/iou"):
            assert both[0][key] == pytest.approx(each[0][key], rel=1e-12)
        assert math.isnan(both[0]["train/grad_norm"])
