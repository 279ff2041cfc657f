"""FSDP: what is sharded, what stays whole, and a state that loads on any number of ranks."""

import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.optim import AdamW, Optimizer

from tests.trainer.parallel.toy import MINUTE, Toy, begin, close, descend, equal, inputs, trained, weights
from tests.trainer.ranks import on_ranks, results
from torchyard.contract.errors import ConfigError
from trainer.parallel import Strategy
from trainer.parallel.fsdp import shard
from trainer.parallel.gathering import gathered
from trainer.world import World, joined

FSDP = {"strategy": "fsdp"}


def optimize(model: nn.Module) -> Optimizer:
    return AdamW(trained(model), lr=0.05)


def whole_state(strategy: Strategy, optimizer: Optimizer, world: World) -> dict[str, Any]:
    """Returns on every rank what rank 0 saves."""
    file = io.BytesIO()
    state = gathered({"model": strategy.model.state_dict(), "optimizer": optimizer.state_dict()}, world)
    if world.rank == 0:
        torch.save(state, file)
    content = next(part for part in world.gather(file.getvalue()) if part)
    assert isinstance(content, bytes)
    return torch.load(io.BytesIO(content), weights_only=True)


def load(state: dict[str, Any], world: World) -> tuple[Strategy, Optimizer]:
    model = Toy(seed=9, norm=True)
    model.load_state_dict(state["model"])
    strategy = begin(model, world, **FSDP)
    optimizer = optimize(model)
    saved = state["optimizer"]
    shards = {
        index: {key: shard(value, like=parameter) for key, value in saved["state"][index].items()}
        for index, parameter in enumerate(trained(model))
    }
    optimizer.load_state_dict({"state": shards, "param_groups": saved["param_groups"]})
    return strategy, optimizer


def save_and_go_on() -> dict[str, Any]:
    with joined(MINUTE) as world:
        model = Toy(norm=True)
        strategy = begin(model, world, **FSDP)
        optimizer = optimize(model)
        descend(strategy, world, [1, 2], optimizer=optimizer)
        strategy.sync_ranks()
        state = whole_state(strategy, optimizer, world)
        weight = trained(model)[0]
        assert isinstance(weight, DTensor)
        part = shard(state["model"]["first.weight"], like=weight)
        assert isinstance(part, DTensor)
        same = torch.equal(part.to_local(), weight.to_local()), part.placements == weight.placements
        again, again_optimizer = load(state, world)
        for number in (3, 4):
            descend(strategy, world, [number], optimizer=optimizer)
            descend(again, world, [number], optimizer=again_optimizer)
        return {
            "state": state,
            "same": same,
            "local": weight.to_local().numel(),
            "straight": weights(model),
            "resumed": weights(again.model),
        }


def load_alone(state: dict[str, Any]) -> dict[str, Any]:
    with joined(MINUTE) as world:
        strategy, optimizer = load(state, world)
        return {"loaded": weights(strategy.model), "state": whole_state(strategy, optimizer, world)}


@pytest.mark.thorough
def test_a_whole_state_resumes_with_shards_at_any_world_size() -> None:
    one, other = results(on_ranks(2, save_and_go_on))
    for found in (one, other):
        assert all(found["same"])
        assert equal(found["straight"], found["resumed"])
    assert equal(one["straight"], other["straight"])
    assert one["local"] + other["local"] == 5 * 6
    assert all(type(tensor) is Tensor for tensor in one["state"]["model"].values())
    (alone,) = results(on_ranks(1, load_alone, one["state"]))
    saved, kept = one["state"], alone["state"]
    assert all(torch.equal(saved["model"][name], kept["model"][name]) for name in saved["model"])
    assert saved["optimizer"]["state"].keys() == kept["optimizer"]["state"].keys()
    for index, entries in saved["optimizer"]["state"].items():
        assert set(entries) == {"step", "exp_avg", "exp_avg_sq"}
        assert all(torch.equal(value, kept["optimizer"]["state"][index][key]) for key, value in entries.items())


def evaluate_first() -> tuple[list[Tensor], list[Tensor], bool]:
    """Returns weights after training with and without evaluations, and whether shards remain."""
    found: list[list[Tensor]] = []
    with joined(MINUTE) as world:
        for evaluates in (True, False):
            model = Toy(norm=True)
            strategy = begin(model, world, **FSDP)
            for step in (1, 2):
                if evaluates:
                    _evaluate(model)
                descend(strategy, world, [step])
            if evaluates:
                _evaluate(model)
            sharded = all(isinstance(parameter, DTensor) for parameter in model.parameters())
            found.append([*weights(model), *(buffer.clone() for buffer in model.buffers())])
        return found[0], found[1], sharded


def _evaluate(model: nn.Module) -> None:
    model.eval()
    with torch.inference_mode():
        model(inputs(0, part=0, rank=0))
    model.train()


def test_evaluation_in_inference_mode_does_not_change_training() -> None:
    for evaluated, plain, sharded in results(on_ranks(2, evaluate_first)):
        assert equal(evaluated, plain)
        assert sharded


class Tied(Toy):
    """A model in which a block shares its weight with the layer before it, and another block is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Linear(5, 5, bias=False, dtype=torch.float64)
        self.front.weight = self.linear(0).weight
        self.linear(2).weight.requires_grad_(False)

    def linear(self, number: int) -> nn.Linear:
        layer = next(self.blocks[number].children())
        assert isinstance(layer, nn.Linear)
        return layer

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.front(self.first(inputs))
        for block in self.blocks:
            hidden = block(hidden)
        return self.last(hidden)


def train_tied() -> tuple[list[Tensor], list[Tensor], bool, list[str]]:
    with joined(MINUTE) as world:
        plain, model = Tied(), Tied()
        ddp, fsdp = begin(plain, world), begin(model, world, **FSDP)
        descend(ddp, world, [1, 2])
        descend(fsdp, world, [1, 2])
        shards = [name for name, module in model.named_modules() if isinstance(module, FSDPModule)]
        return weights(plain), weights(model), model.front.weight is model.linear(0).weight, shards


def test_shared_weights_stay_shared_and_frozen_weights_frozen() -> None:
    for plain, sharded, tied, blocks in results(on_ranks(2, train_tied)):
        assert close(plain, sharded)
        assert tied
        # The root shards the block with the shared weight; the other blocks are sharded on their own.
        assert blocks == ["", "blocks.1", "blocks.2"]
        assert torch.equal(sharded[6], list(Tied().parameters())[6])


def convolve(strategy_name: str) -> list[Tensor]:
    """Returns the weights of a convolution in channels_last."""
    with joined(MINUTE) as world:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3)).double()
        model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue] an overload that torch forgot
        strategy = begin(model, world, strategy=strategy_name)
        pictures = torch.randn(2, 3, 8, 8, dtype=torch.float64).to(memory_format=torch.channels_last)
        optimizer = optimize(model)
        with strategy.micro_batch(last=True):
            strategy.model(pictures).square().mean().backward()
        optimizer.step()
        return weights(model)


@pytest.mark.thorough
def test_a_model_in_channels_last_can_be_sharded() -> None:
    (sharded,) = results(on_ranks(1, convolve, "fsdp"))
    (whole,) = results(on_ranks(1, convolve, "ddp"))
    assert close(sharded, whole)


class Scaled(nn.Linear):
    def __init__(self) -> None:
        super().__init__(2, 2)
        self.scale = nn.Parameter(torch.tensor(1.0))


def shard_a_scalar() -> None:
    with joined(MINUTE) as world:
        begin(Scaled(), world, **FSDP)


def test_a_model_that_cannot_be_sharded_is_an_error_that_names_the_key() -> None:
    (error,) = on_ranks(1, shard_a_scalar)
    assert isinstance(error, ConfigError)
    with pytest.raises(ConfigError, match=r"distributed\.strategy: fsdp .* scale"):
        raise error
