from typing import Any, Literal

import pytest
import torch
from torch import nn

from torchyard.contract.errors import ConfigError
from torchyard.contract.recipes import OptimizerConfig
from torchyard.models.vision import SmallCNN
from trainer.optimization import make_optimizer, scaled_lr

CPU = torch.device("cpu")


def config(name: str, **more: Any) -> OptimizerConfig:
    return OptimizerConfig.model_validate({"name": name, **more})


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("sgd", torch.optim.SGD),
        ("adam", torch.optim.Adam),
        ("adamw", torch.optim.AdamW),
        ("rmsprop", torch.optim.RMSprop),
    ],
)
def test_norms_and_biases_have_no_weight_decay(name: str, kind: type[torch.optim.Optimizer]) -> None:
    model = SmallCNN(channels=1, classes=3)
    optimizer = make_optimizer(model, config(name, weight_decay=0.25), lr=0.5, device=CPU)
    assert type(optimizer) is kind
    decays = {id(item): group["weight_decay"] for group in optimizer.param_groups for item in group["params"]}
    assert {name: decays[id(item)] for name, item in model.named_parameters() if decays[id(item)]} == {
        "features.0.weight": 0.25,
        "features.3.weight": 0.25,
        "features.6.weight": 0.25,
        "classifier.0.weight": 0.25,
        "classifier.3.weight": 0.25,
    }
    assert len(decays) == len(list(model.parameters()))
    assert all(group["lr"] == 0.5 for group in optimizer.param_groups)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "rmsprop"])
def test_without_a_gradient_only_weight_decay_changes_matrices(name: str) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))
    for parameter in model.parameters():
        nn.init.constant_(parameter, 2.0)
        parameter.grad = torch.zeros_like(parameter)
    make_optimizer(model, config(name, weight_decay=0.5), lr=0.1, device=CPU).step()
    moved = {key: item[0, 0].item() for key, item in model.named_parameters() if not bool((item == 2.0).all())}
    # decay · weight = 1 is the gradient but for AdamW: Adam's step is its sign, RMSprop's is it over sqrt(0.01).
    assert moved == pytest.approx({"0.weight": {"sgd": 1.9, "adam": 1.9, "adamw": 1.9, "rmsprop": 1.0}[name]})


@pytest.mark.parametrize(
    ("name", "more", "expected"),
    [
        # Two steps of lr 0.1 with a gradient of 1, from 0. Momentum m: 1, then m + 1.
        ("sgd", {"momentum": 0.0}, -0.2),
        ("sgd", {"momentum": 0.5}, -0.25),
        ("sgd", {"momentum": 0.5, "nesterov": True}, -0.325),  # 1 + 0.5, then 1 + 0.5 · 1.5
        ("adam", {}, -0.2),
        ("adamw", {}, -0.2),
        ("rmsprop", {"momentum": 0.0}, -1 - 0.1 / 0.0199**0.5),
        ("rmsprop", {"momentum": 0.5}, -1 - 0.1 / 0.0199**0.5 - 0.5),
    ],
)
def test_two_steps_by_hand(name: str, more: dict[str, Any], expected: float) -> None:
    model = nn.Linear(1, 1, bias=False, dtype=torch.float64)
    nn.init.zeros_(model.weight)
    optimizer = make_optimizer(model, config(name, weight_decay=0.0, **more), lr=0.1, device=CPU)
    for _ in range(2):
        model.weight.grad = torch.ones_like(model.weight)
        optimizer.step()
    assert model.weight.item() == pytest.approx(expected, rel=1e-6)


def test_frozen_parameters_are_left_out() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    optimizer = make_optimizer(model, config("sgd"), lr=0.1, device=CPU)
    held = [id(item) for group in optimizer.param_groups for item in group["params"]]
    assert sorted(held) == sorted(id(item) for item in model[1].parameters())


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_fused_is_used_if_wanted(name: str) -> None:
    model = nn.Linear(2, 2)
    wanted: list[tuple[bool | Literal["auto"], bool]] = [(True, True), (False, False), ("auto", False)]
    for fused, expected in wanted:
        optimizer = make_optimizer(model, config(name, fused=fused), lr=0.1, device=CPU)
        assert [bool(group["fused"]) for group in optimizer.param_groups] == [expected, expected]


def test_fused_that_cannot_work_is_a_configuration_error() -> None:
    unchecked = config("rmsprop").model_copy(update={"fused": True})
    with pytest.raises(ConfigError, match=r"optimizer\.fused.*rmsprop"):
        make_optimizer(nn.Linear(2, 2), unchecked, lr=0.1, device=CPU)


@pytest.mark.parametrize(
    ("scaling", "global_batch", "expected"),
    [
        ("none", 512, 0.1),
        ("linear", 32, 0.1),
        ("linear", 512, 1.6),
        ("linear", 48, 0.15),
        ("sqrt", 32, 0.1),
        ("sqrt", 512, 0.4),
        ("sqrt", 64, 0.141421356),
    ],
)
def test_the_learning_rate_scales_with_the_global_batch(scaling: str, global_batch: int, expected: float) -> None:
    scaled = scaled_lr(config("sgd", lr=0.1, lr_scaling=scaling), global_batch=global_batch, per_device_batch=32)
    assert scaled == pytest.approx(expected)
