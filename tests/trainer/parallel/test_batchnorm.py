"""Batch norm over two ranks is batch norm over one big batch."""

from contextlib import nullcontext
from datetime import timedelta

import pytest
import torch
from torch import Tensor, nn

from tests.trainer.ranks import on_ranks, results
from trainer.parallel.batchnorm import synchronized
from trainer.skipping import Statistics
from trainer.world import joined

BATCH = 7


def model() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 3),
        nn.BatchNorm1d(3, affine=False),
    ).double()


def run(network: nn.Module, inputs: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """What two training passes leave: gradients of a sum over samples, and buffers."""
    for _ in range(2):
        (network(inputs).pow(3) * weights).sum().backward()
    found = {name: parameter.grad for name, parameter in network.named_parameters() if parameter.grad is not None}
    return {**found, **dict(network.named_buffers()), "evaluated": network.eval()(inputs).detach()}


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(BATCH, 2, 6, 6, dtype=torch.float64, generator=generator)
    return inputs, torch.randn(BATCH, 3, dtype=torch.float64, generator=generator)


def on_a_rank() -> dict[str, Tensor]:
    with joined(timedelta(minutes=1)) as world:
        own = slice(0, 4) if world.rank == 0 else slice(4, BATCH)
        inputs, weights = data()
        network = synchronized(model(), world)
        found = run(network, inputs[own], weights[own])
        for name, _ in network.named_parameters():
            world.sum(found[name])
        return found


def standing_in() -> dict[str, Tensor]:
    """Returns what rank 0's samples leave, where rank 1 stands in with one of other numbers that counts nothing."""
    with joined(timedelta(minutes=1)) as world:
        inputs, weights = data()
        network = synchronized(model(), world)
        if world.rank == 0:
            return run(network, inputs, weights)
        with Statistics(network).untouched():
            return run(network, inputs[:1] * 1000, weights[:1] * 0)


def test_a_rank_that_stands_in_changes_neither_statistics_nor_gradients() -> None:
    expected = run(model(), *data())
    one, other = results(on_ranks(2, standing_in))
    buffers = dict(model().named_buffers())
    for name, value in expected.items():
        assert torch.allclose(one[name], value, rtol=0, atol=1e-11), name
        if name in buffers:
            assert torch.equal(one[name], other[name]), name
        elif name != "evaluated":
            assert not other[name].any(), name


def single() -> dict[str, Tensor]:
    with joined(timedelta(minutes=1)) as world:
        network = synchronized(nn.BatchNorm1d(3).double(), world)
        with Statistics(network).untouched() if world.rank else nullcontext():
            network(torch.ones(1, 3, dtype=torch.float64)).sum().backward()
        return dict(network.named_buffers())


def test_the_statistics_of_a_single_value_are_finite() -> None:
    for found in results(on_ranks(2, single)):
        assert found["running_mean"].tolist() == pytest.approx([0.1] * 3)
        assert found["running_var"].tolist() == pytest.approx([0.9] * 3)


def test_uneven_batches_give_the_gradients_and_statistics_of_the_joined_batch() -> None:
    expected = run(model(), *data())
    evaluated = expected.pop("evaluated")
    ranks = results(on_ranks(2, on_a_rank))
    assert torch.allclose(torch.cat([found.pop("evaluated") for found in ranks]), evaluated, rtol=0, atol=1e-12)
    for found in ranks:
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert torch.allclose(found[name], value, rtol=0, atol=1e-11), name
