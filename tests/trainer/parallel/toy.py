"""A small model in double precision, and plain gradient descent through a strategy."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from torchyard.contract.recipes import DistributedConfig
from trainer.parallel import Strategy, make_strategy
from trainer.train import gradient_norm
from trainer.world import World

MINUTE = timedelta(minutes=1)
LR = 0.3


class Toy(nn.Module):
    """A model from six numbers to two, through a list of blocks, with an optional batch norm."""

    def __init__(self, *, seed: int = 0, norm: bool = False) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first = nn.Linear(6, 5)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(5, 5), nn.Tanh()) for _ in range(3))
        self.norm = nn.BatchNorm1d(5) if norm else nn.Identity()
        self.last = nn.Linear(5, 2, bias=False)
        self.double()

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs)
        for block in self.blocks:
            hidden = block(hidden)
        return self.last(self.norm(hidden))


def config(**keys: Any) -> DistributedConfig:
    return DistributedConfig.model_validate(keys)


def inputs(step: int, *, part: int, rank: int) -> Tensor:
    """Returns the inputs of one micro-batch: eight samples of optimizer step `step`."""
    generator = torch.Generator().manual_seed(step * 10_000 + part * 100 + rank)
    return torch.randn(8, 6, dtype=torch.float64, generator=generator)


def loss(outputs: Tensor) -> Tensor:
    return (outputs - 1).square().mean()


def descend(
    strategy: Strategy,
    world: World,
    steps: Sequence[int],
    *,
    parts: int = 1,
    max_norm: float | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> None:
    """Takes steps of gradient descent on the mean over `parts` micro-batches of every rank."""
    optimizer = optimizer or torch.optim.SGD(trained(strategy.model), lr=LR)
    for step in steps:
        for part in range(parts):
            with strategy.micro_batch(last=part == parts - 1):
                (loss(strategy.model(inputs(step, part=part, rank=world.rank))) / parts).backward()
        if max_norm is not None:
            parameters = trained(strategy.model)
            nn.utils.clip_grads_with_norm_(parameters, max_norm, gradient_norm(parameters))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        strategy.after_step(step, skipped=torch.zeros(()))


def alone(
    model: nn.Module, steps: Sequence[int], *, ranks: Sequence[int], parts: int = 1, max_norm: float | None = None
) -> list[Tensor]:
    """Trains one process without a strategy on the micro-batches of `ranks`. Returns the weights."""
    optimizer = torch.optim.SGD(trained(model), lr=LR)
    for step in steps:
        batch = [inputs(step, part=part, rank=rank) for rank in ranks for part in range(parts)]
        loss(model(torch.cat(batch))).backward()
        if max_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return weights(model)


def trained(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def weights(model: nn.Module) -> list[Tensor]:
    """Returns whole copies. A collective with shards."""
    return [(item.full_tensor() if isinstance(item, DTensor) else item).detach().clone() for item in model.parameters()]


def close(ours: Sequence[Tensor], theirs: Sequence[Tensor], *, within: float = 1e-13) -> bool:
    return all(torch.allclose(a, b, rtol=0, atol=within) for a, b in zip(ours, theirs, strict=True))


def equal(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def begin(model: nn.Module, world: World, **keys: Any) -> Strategy:
    return make_strategy(model, config(**keys), world)
