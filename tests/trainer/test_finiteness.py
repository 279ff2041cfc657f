"""A run never resumes from weights or moments that are not finite."""

from collections.abc import Callable, Mapping
from datetime import timedelta
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.approved import Approved
from tests.trainer.ranks import environment, job, on_ranks, results
from tests.trainer.runs import lines, load, points, same, small_pictures, state
import torchyard
from torchyard.contract.attempts.events import CheckpointSaved, Message
from torchyard.contract.attempts.rundir import RunDir
from trainer.__main__ import make_training, read_config
from trainer.finiteness import names_to_check, nonfinite_weights
from trainer.train import Training
from trainer.world import joined

CONFIG: dict[str, Any] = {
    "training": {"epochs": 2, "per_device_batch_size": 8, "deterministic": True},
    "lr_scheduler": {"warmup_steps": 3},
    "logging": {"every_steps": 2},
}
TECHNIQUES = [
    pytest.param(1, {"optimizer": {"name": "sgd", "lr": 0.01}}, marks=pytest.mark.thorough),
    pytest.param(2, {"optimizer": {"name": "adamw"}, "ema": {"decay": 0.9, "ramp": 2}}),
    pytest.param(2, {"optimizer": {"name": "adamw", "fused": True}}, marks=pytest.mark.thorough),
]
"""Numbers of ranks, and techniques. tests/trainer/test_nonfinite.py tests more of both."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Writes 60 training pictures: 4 steps an epoch on two ranks with batches of 8, the last one smaller."""
    return small_pictures(tmp_path_factory.mktemp("data"), train=60, val=20)


def train(prepare: Callable[[Training], None]) -> bool:
    """Runs the trainer's main with a training that `prepare` has changed."""
    run = torchyard.init()
    config = read_config(run)
    try:
        with joined(timedelta(minutes=1)) as world:
            training = make_training(run, config=config, world=world)
            prepare(training)
            training.train()
    finally:
        run.close()
    return True


def poison_gradients(training: Training) -> None:
    """Makes rank 0's first gradient NaN in steps 2 and 4, with a finite loss."""
    if training.world.rank == 0:
        weight = next(training.task.model.parameters())

        def poison(gradient: Tensor) -> Tensor:
            return gradient * math.nan if training.position.step in {1, 3} else gradient

        weight.register_hook(poison)


@pytest.mark.parametrize(("ranks", "technique"), TECHNIQUES)
def test_a_nonfinite_gradient_with_a_finite_loss_does_not_reach_checkpoints(
    tmp_path: Path, small: str, ranks: int, technique: dict[str, Any]
) -> None:
    training = {**CONFIG["training"], "per_device_batch_size": 16 // ranks}
    config = {**CONFIG, **technique, "training": training}
    run = job(tmp_path / "1", config, checkpoint={"every_steps": 2})
    results(on_ranks(ranks, train, poison_gradients, env=environment(run, data=small)))
    names = ["epoch-0001", "epoch-0002", "step-00000002", "step-00000006"]
    assert sorted(path.name for path in run.checkpoints.iterdir()) == names
    for name in names:
        saved = state(run, name)
        assert all(bool(tensor.isfinite().all()) for tensor in saved["model"].values())
    assert all(math.isfinite(loss) for _, loss in points(run, "train/loss"))
    finite = [(step, math.isfinite(norm)) for step, norm in points(run, "train/grad_norm")]
    assert finite == [(2, False), (4, False), (6, True), (8, True)]

    again = job(tmp_path / "2", config, checkpoint={"every_steps": 2})
    where = environment(again, data=small, resume_from=run.checkpoints / ("epoch-0001" if ranks == 1 else names[2]))
    results(on_ranks(ranks, train, poison_gradients, env=where))
    assert same(load(again.checkpoints / "epoch-0002"), state(run, "epoch-0002"))


def spoil(training: Training) -> None:
    """Makes a weight NaN at the end of epoch 2, and restores it before epoch 3."""
    model = training.task.model
    weight = next(model.parameters())
    kept: list[Tensor] = []
    log_epoch, restart_clock = training.report.log_epoch, training.report.restart_clock

    @torch.no_grad()
    def spoiled(measured: Mapping[str, float], *, epoch: int, epochs: int, step: int) -> None:
        if epoch == 2:
            kept.append(weight.clone())
            weight.fill_(math.nan)
        log_epoch(measured, epoch=epoch, epochs=epochs, step=step)

    @torch.no_grad()
    def restored(*, whole_epoch: bool) -> None:
        if kept:
            weight.copy_(kept.pop())
        restart_clock(whole_epoch=whole_epoch)

    training.report.log_epoch, training.report.restart_clock = spoiled, restored


def test_nonfinite_weights_are_not_saved_and_reported_and_the_last_good_checkpoint_stays(
    tmp_path: Path, small: str, approved: Approved
) -> None:
    config = {**CONFIG, "training": {**CONFIG["training"], "epochs": 3}}
    run = job(tmp_path / "1", config)
    results(on_ranks(2, train, spoil, env=environment(run, data=small)))
    names = ["epoch-0001", "epoch-0003"]
    assert sorted(path.name for path in run.checkpoints.iterdir()) == names
    assert [line.name for line in lines(run) if isinstance(line, CheckpointSaved)] == names
    (said,) = warnings(run)
    assert said == approved("said")


def warnings(run: RunDir) -> list[str]:
    return [line.text for line in lines(run) if isinstance(line, Message) and line.level == "warning"]


def saved() -> dict[str, Any]:
    """Returns the state of a layer, its batch norm, and one rank that trains alone."""
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(3, 2)).sum().backward()
    optimizer.step()

    def weights() -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in model.state_dict().items()}

    def moments() -> dict[str, Any]:
        found = optimizer.state_dict()
        kept = {index: {key: item.clone() for key, item in part.items()} for index, part in found["state"].items()}
        return {"state": kept, "param_groups": found["param_groups"]}

    own = {"model": weights(), "ema": weights(), "lookahead": weights(), "optimizer": moments()}
    return {
        "model": weights(),
        "raw": weights(),
        "slow": weights(),
        "optimizer": moments(),
        "own": [own],
        "strategy": {"error": torch.tensor([math.nan])},
    }


def path_in(tree: Any, path: str) -> Tensor:
    for key in path.split("/"):
        tree = tree[int(key) if key.isdigit() else key]
    return tree


NAMES = ["0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked"]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("model/0.weight", "0.weight"),
        ("raw/1.bias", "raw 1.bias"),
        ("slow/0.bias", "slow 0.bias"),
        ("model/1.running_mean", "1.running_mean"),
        ("raw/1.running_var", "raw 1.running_var"),
        ("own/0/model/1.running_mean", "rank 0's 1.running_mean"),
        ("optimizer/state/3/exp_avg_sq", "exp_avg_sq of parameter 3"),
        ("own/0/model/0.weight", "rank 0's 0.weight"),
        ("own/0/ema/0.weight", "rank 0's average 0.weight"),
        ("own/0/lookahead/0.weight", "rank 0's slow 0.weight"),
        ("own/0/optimizer/state/0/exp_avg", "exp_avg of parameter 0 of rank 0"),
    ],
)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_buffers_averages_and_moments_must_be_finite(
    path: str, name: str, value: float, approved: Approved
) -> None:
    state = saved()
    assert nonfinite_weights(state, names=NAMES) is None
    path_in(state, path).view(-1)[0] = value
    reason = nonfinite_weights(state, names=NAMES)
    assert reason is not None
    assert reason == approved("reason", name=name)


def test_a_buffer_that_is_infinite_by_design_and_the_strategys_state_need_not_be_finite() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model[0].register_buffer("mask", torch.tensor([0.0, -math.inf]))
    assert names_to_check(model) == {*NAMES}
    model.get_buffer("1.running_var").fill_(math.nan)
    assert names_to_check(model) == {*NAMES}
    assert nonfinite_weights({**saved(), "model": model.state_dict()}, names=NAMES) is not None
