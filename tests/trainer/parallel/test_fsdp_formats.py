"""FSDP gathers weights in the format of matrix products, and keeps and adds up in fp32."""

from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed, nn

from tests.trainer.ranks import on_ranks, results
from torchyard.contract.recipes import DistributedConfig
from trainer.parallel import make_strategy
from trainer.world import World, joined

WEIGHTS = 2 * (8 * 3 * 3 * 3 + 8) + 8 * 16
"""Of convolutions and the linear layer below."""
NORMS = 2 * 2 * 8
"""Of the batch norms below."""


def block() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.head = block(), block(), nn.Linear(8, 16, bias=False)

    def forward(self, pictures: Tensor) -> Tensor:
        return self.head((self.left(pictures) + self.right(pictures)).mean((2, 3)))


COMPUTED: tuple[torch.dtype | None, ...] = (None, torch.bfloat16)


def gathered() -> list[tuple[int, set[str], set[str]]]:
    """Returns for each format the bytes that a forward pass gathers, and the formats of shards and of gradients."""
    with joined(timedelta(minutes=1)) as world:
        return [_gathered(compute, world) for compute in COMPUTED]


def _gathered(compute: torch.dtype | None, world: World) -> tuple[int, set[str], set[str]]:
    bytes_seen = 0
    name = "all_gather_single" if hasattr(distributed, "all_gather_single") else "all_gather_into_tensor"
    gather = getattr(distributed, name)

    def counted(output_tensor: Tensor, *arguments: Any, **named: Any) -> Any:
        nonlocal bytes_seen
        bytes_seen += output_tensor.nbytes
        return gather(output_tensor, *arguments, **named)

    strategy = make_strategy(Network(), DistributedConfig(strategy="fsdp"), world, compute=compute)
    setattr(distributed, name, counted)
    with torch.autocast("cpu", dtype=compute or torch.bfloat16, enabled=compute is not None):
        loss = strategy.model(torch.randn(4, 3, 8, 8)).float().square().mean()
    setattr(distributed, name, gather)
    seen = bytes_seen
    loss.backward()
    parameters = list(strategy.model.parameters())
    formats = {str(item.dtype) for item in parameters}
    return seen, formats, {str(item.grad.dtype) for item in parameters if item.grad is not None}


def test_weights_are_gathered_in_the_format_of_products_and_kept_in_fp32() -> None:
    for found in results(on_ranks(2, gathered)):
        for width, (seen, kept, gradients) in zip((4, 2), found, strict=True):
            assert seen == WEIGHTS * width + NORMS * 4
            assert kept == gradients == {"torch.float32"}
