from typing import Any

import pytest
import torch

from torchyard.recipes import OptimizerConfig, SchedulerConfig
from trainer.models.vision import SmallCNN
from trainer.optimization import Schedule, make_optimizer

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"name": "constant"}, [1.0] * 8),
        ({"name": "constant", "warmup_steps": 4}, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ({"name": "step", "step_epochs": 2, "gamma": 0.5}, [1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5]),
        ({"name": "cosine"}, [1.0, 0.961940, 0.853553, 0.691342, 0.5, 0.308658, 0.146447, 0.038060]),
        ({"name": "cosine", "min_lr": 0.5, "warmup_steps": 4}, [0.25, 0.5, 0.75, 1.0, 1.0, 0.926777, 0.75, 0.573223]),
    ],
)
def test_the_rate_of_each_step(config: dict[str, Any], expected: list[float]) -> None:
    schedule = Schedule(SchedulerConfig.model_validate(config), base_lr=1.0, total_steps=8)
    rates = [schedule.lr(step, epoch=1 + (step - 1) // 2) for step in range(1, 9)]
    assert rates == pytest.approx(expected, abs=1e-6)


def test_a_warm_up_longer_than_the_run_stays_above_zero() -> None:
    schedule = Schedule(SchedulerConfig(warmup_steps=100), base_lr=1.0, total_steps=10)
    assert [schedule.lr(step, epoch=1) for step in (1, 10)] == pytest.approx([0.01, 0.1])


@pytest.mark.parametrize(
    ("name", "kind"), [("sgd", torch.optim.SGD), ("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)]
)
def test_norms_and_biases_have_no_weight_decay(name: str, kind: type[torch.optim.Optimizer]) -> None:
    model = SmallCNN(channels=1, classes=3)
    config = OptimizerConfig.model_validate({"name": name, "lr": 0.5, "weight_decay": 0.25})
    optimizer = make_optimizer(model, config, device=CPU)
    assert type(optimizer) is kind
    decayed = {id(item) for group in optimizer.param_groups if group["weight_decay"] for item in group["params"]}
    named = dict(model.named_parameters())
    assert {name for name, item in named.items() if id(item) in decayed} == {
        "features.0.weight",
        "features.3.weight",
        "features.6.weight",
        "classifier.0.weight",
        "classifier.3.weight",
    }
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(named)
    assert all(group["lr"] == 0.5 for group in optimizer.param_groups)
