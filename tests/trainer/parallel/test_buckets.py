"""DDP's buckets are the same from the first step on."""

import torch
from torch import Tensor, nn

from tests.trainer.parallel.toy import MINUTE, begin, equal, weights
from tests.trainer.ranks import on_ranks, results
from trainer.world import World, joined

WIDTH = 300


def several_buckets() -> nn.Sequential:
    """A model of more than a mebibyte, whose layers get their gradients one after the other."""
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))


def train(model: nn.Module, world: World, first: int, last: int) -> list[Tensor]:
    strategy = begin(model, world, bucket_cap_mb=1)
    for step in range(first, last + 1):
        generator = torch.Generator().manual_seed(step * 100 + world.rank)
        strategy.model(torch.randn(2, WIDTH, generator=generator)).square().mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.sub_(parameter.grad, alpha=0.1)
                parameter.grad = None
    return weights(model)


def go_on_or_start_anew() -> tuple[list[Tensor], list[Tensor]]:
    with joined(MINUTE) as world:
        straight = train(several_buckets(), world, 1, 3)
        model = several_buckets()
        train(model, world, 1, 2)
        return straight, train(model, world, 3, 3)


def test_three_ranks_sum_gradients_in_the_same_order_before_and_after_a_resume() -> None:
    for straight, resumed in results(on_ranks(3, go_on_or_start_anew)):
        assert equal(straight, resumed)
