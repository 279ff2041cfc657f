"""All strategies average the ranks' gradients, and `sync_ranks` makes the ranks equal."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.trainer.parallel.toy import MINUTE, Toy, alone, begin, close, descend, equal, weights
from tests.trainer.ranks import on_ranks, results
from torchyard.contract.recipes import DistributedConfig
from trainer.parallel import make_strategy
from trainer.parallel.ddp import Ddp
from trainer.world import World, joined

SYNCHRONOUS: list[dict[str, Any]] = [
    {"strategy": "ddp"},
    {"strategy": "ddp", "find_unused_parameters": True},
    {"strategy": "ddp", "static_graph": True},
    {"strategy": "ddp", "gradient_as_bucket_view": False},
    {"strategy": "local_sgd", "local_sgd": {"warmup_steps": 100}},
    {"strategy": "fsdp"},
]
STEPS = range(1, 4)
NORM = 0.4


@pytest.fixture(scope="module")
def ranks() -> list[tuple[list[list[Tensor]], list[dict[str, Tensor]]]]:
    """Trains two ranks with each strategy and synchronizes their buffers. Returns the results of each rank."""
    return results(on_ranks(2, train_and_sync))


def train_and_sync() -> tuple[list[list[Tensor]], list[dict[str, Tensor]]]:
    with joined(MINUTE) as world:
        return train_each(world), sync_each(world)


def train_each(world: World) -> list[list[Tensor]]:
    """Returns the weights after training with each strategy, from different initial weights on each rank."""
    found: list[list[Tensor]] = []
    for keys in SYNCHRONOUS:
        for parts in (1, 3):
            if parts == 3 and keys.get("static_graph"):
                continue
            strategy = begin(Toy(seed=world.rank), world, **keys)
            descend(strategy, world, STEPS, parts=parts, max_norm=NORM if parts == 3 else None)
            found.append(weights(strategy.model))
    return found


def test_steps_equal_those_of_one_process_on_the_joined_batch(ranks: list[tuple[list[list[Tensor]], Any]]) -> None:
    straight = alone(Toy(), STEPS, ranks=range(2))
    accumulated = alone(Toy(), STEPS, ranks=range(2), parts=3, max_norm=NORM)
    assert not close(
        accumulated, alone(Toy(), STEPS, ranks=range(2), parts=3), within=1e-3
    )  # clipping changes the result
    first, other = (trained for trained, _ in ranks)
    expected = [straight, accumulated] * 2 + [straight] + [straight, accumulated] * 3
    for ours, theirs in zip(first, expected, strict=True):
        assert close(ours, theirs)
    assert all(equal(ours, theirs) for ours, theirs in zip(other, first, strict=True))


def train_one_process() -> list[tuple[str, list[Tensor]]]:
    """Returns the strategy and the weights after training, with the wrapper of DDP and without it."""
    found: list[tuple[str, list[Tensor]]] = []
    with joined(MINUTE) as world:
        for make in (Ddp, make_strategy):
            strategy = make(Toy(seed=3), DistributedConfig(), world)
            descend(strategy, world, STEPS, parts=3, max_norm=NORM)
            found.append((type(strategy.model).__name__, weights(strategy.model)))
        return found


def test_one_process_takes_the_steps_of_ddp_without_its_wrapper() -> None:
    ((((_, wrapped), (model, plain))),) = results(on_ranks(1, train_one_process))
    assert model == "Toy"
    assert equal(wrapped, plain)


def compress_alone() -> str:
    with joined(MINUTE) as world:
        return type(begin(Toy(), world, comm_hook="fp16").model).__name__


def test_one_process_keeps_ddp_for_a_communication_hook() -> None:
    assert results(on_ranks(1, compress_alone)) == ["DistributedDataParallel"]


def sync_each(world: World) -> list[dict[str, Tensor]]:
    found: list[dict[str, Tensor]] = []
    for name in ("ddp", "local_sgd", "fsdp"):
        strategy = begin(Toy(norm=True), world, strategy=name)
        descend(strategy, world, [1, 2])
        extra = {
            key: torch.full_like(tensor, 10 + world.rank)
            for key, tensor in strategy.model.named_buffers()
            if "running" in key
        }
        not_synced = {key: tensor.clone() for key, tensor in strategy.model.named_buffers()}
        strategy.sync_ranks({key.removeprefix("module."): tensor for key, tensor in extra.items()})
        found.append({key: tensor.clone() for key, tensor in strategy.model.named_buffers()})
        found.append(not_synced)
        found.append(extra)
    return found


def test_all_ranks_have_rank_0s_buffers_after_synchronization(ranks: list[tuple[Any, list[dict[str, Tensor]]]]) -> None:
    one, other = (synced for _, synced in ranks)
    for index in range(0, 9, 3):
        (synced, not_synced, extra), (also, differed, same) = one[index : index + 3], other[index : index + 3]
        assert any(not torch.equal(not_synced[key], differed[key]) for key in not_synced)
        for key in synced:
            assert torch.equal(synced[key], not_synced[key])
            assert torch.equal(synced[key], also[key])
        assert extra
        for key in extra:
            assert bool((extra[key] == 10).all())
            assert torch.equal(extra[key], same[key])


def train_with_joined_norms() -> list[list[Tensor]]:
    with joined(MINUTE) as world:
        found: list[list[Tensor]] = []
        for name in ("ddp", "fsdp"):
            strategy = begin(Toy(norm=True), world, strategy=name, sync_batchnorm=True)
            descend(strategy, world, STEPS)
            found.append([*weights(strategy.model), *(buffer.clone() for buffer in strategy.model.buffers())])
        return found


@pytest.mark.thorough
def test_synchronized_batch_norm_on_two_ranks_equals_one_large_batch() -> None:
    model = Toy(norm=True)
    expected: list[Tensor] = [*alone(model, STEPS, ranks=range(2)), *model.buffers()]
    for found in results(on_ranks(2, train_with_joined_norms)):
        for ours in found:
            assert close(ours, expected, within=1e-12)


def keep_names() -> list[list[str]]:
    with joined(MINUTE) as world:
        model = Toy(norm=True)
        names = [list(model.state_dict())]
        for name in ("local_sgd", "fsdp"):
            make = begin(model, world, strategy=name)
            assert isinstance(make.model, nn.Module)
            names.append(list(model.state_dict()))
        return names


def test_the_model_keeps_its_names() -> None:
    (names,) = results(on_ranks(1, keep_names))
    assert names[1] == names[0]
    assert names[2] == names[0]
