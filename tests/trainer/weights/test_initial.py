"""Initial values of new layers, frozen parameters, and frozen batch norms."""

import math
from typing import Literal

import pytest
import torch
from torch import nn

from tests.approved import Approved
from torchyard.contract.errors import ConfigError
from trainer.weights.initial import freeze, initialize, train_mode


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 36, 400), nn.Linear(400, 300)
    )


def values(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


@pytest.mark.parametrize("init", ["xavier", "kaiming"])
def test_new_layers_are_initialized_and_others_stay_bit_equal(init: Literal["xavier", "kaiming"]) -> None:
    own = model()
    before = values(own)
    initialize(own, {"5.weight", "5.bias", "1.weight"}, init)
    for name, value in own.state_dict().items():
        assert torch.equal(value, before[name]) == (name not in {"5.weight", "5.bias"})
    assert own.get_parameter("5.bias").eq(0).all()
    again = model()
    initialize(again, {"5.weight"}, init)
    assert not torch.equal(again.get_parameter("5.weight"), before["5.weight"])
    assert torch.equal(again.get_parameter("5.bias"), before["5.bias"])


def test_initial_weights_have_the_standard_deviations_of_the_papers() -> None:
    own = model()
    names = [name for name, _ in own.named_parameters()]
    initialize(own, names, "xavier")
    assert own.get_parameter("5.weight").std().item() == pytest.approx(math.sqrt(2 / (400 + 300)), rel=0.02)
    assert own.get_parameter("0.weight").abs().max().item() <= math.sqrt(6 / (9 * (3 + 64)))
    initialize(own, names, "kaiming")
    assert own.get_parameter("5.weight").std().item() == pytest.approx(math.sqrt(2 / 400), rel=0.02)
    assert own.get_parameter("0.weight").std().item() == pytest.approx(math.sqrt(2 / 27), rel=0.1)
    assert own.get_parameter("1.weight").eq(1).all()


def test_the_default_draws_nothing_and_embeddings_and_norms_stay() -> None:
    own = model()
    before = values(own)
    initialize(own, before, "default")
    assert all(torch.equal(value, before[name]) for name, value in own.state_dict().items())

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(10, 4, padding_idx=0)
            self.scale = nn.Parameter(torch.full((4, 1, 1), 1e-6))
            self.attention = nn.MultiheadAttention(4, 2)

    odd = Odd()
    before = values(odd)
    initialize(odd, before, "kaiming")
    changed = {name for name, value in odd.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"attention.in_proj_weight", "attention.out_proj.weight"}


@pytest.mark.parametrize(
    ("patterns", "frozen"),
    [
        ([], set[str]()),
        (["0"], {"0.weight", "0.bias"}),
        (["0.", "1.bias"], {"0.weight", "0.bias", "1.bias"}),
        (["*.bias"], {"0.bias", "1.bias", "4.bias", "5.bias"}),
        (["[01].*"], {"0.weight", "0.bias", "1.weight", "1.bias"}),
    ],
)
def test_parameters_are_frozen_by_name_beginning_or_pattern(patterns: list[str], frozen: set[str]) -> None:
    own = model()
    freeze(own, patterns)
    assert {name for name, parameter in own.named_parameters() if not parameter.requires_grad} == frozen


@pytest.mark.parametrize(
    "patterns",
    [
        ["encoder.convv"],
        ["enc"],
        ["zzzzzz"],
        ["*"],
        ["encoder", "head"],
    ],
)
def test_a_freeze_pattern_that_cannot_work_is_a_configuration_error(patterns: list[str], approved: Approved) -> None:
    own = nn.ModuleDict({"encoder": nn.ModuleDict({"conv": nn.Linear(2, 2)}), "head": nn.Linear(2, 2)})
    with pytest.raises(ConfigError, match=r"model\.freeze") as caught:
        freeze(own, patterns)
    assert caught.value.message == approved.of_row("message")


def test_frozen_batch_norms_keep_their_statistics() -> None:
    own = nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(2), nn.BatchNorm1d(2, affine=False), nn.Dropout())
    freeze(own, ["0"])
    own.get_parameter("1.bias").requires_grad_(False)
    own.eval()
    train_mode(own)
    assert [module.training for module in own] == [False, True, True, True]
    own(torch.rand(8, 2) + 5)
    means = [own.get_buffer(f"{number}.running_mean").abs().max().item() for number in range(3)]
    assert means[0] == 0
    assert min(means[1:]) > 0
