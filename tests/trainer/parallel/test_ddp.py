"""DDP all-reduces once a window. Compressed gradients equal plain ones within the precision of their dtype."""

import torch
from torch import Tensor
from torch.distributed import GradBucket  # pyright: ignore[reportPrivateImportUsage]
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future

from tests.trainer.parallel.toy import MINUTE, Toy, begin, close, config, descend, equal, inputs, loss, weights
from tests.trainer.ranks import on_ranks, results
from trainer.parallel.ddp import Ddp
from trainer.world import joined


def count_reductions(parts: int) -> tuple[int, list[Tensor | None]]:
    """Returns how often the gradients of 4 steps were all-reduced, and the gradients before the first step."""
    reduced = 0

    def count(state: None, bucket: GradBucket) -> Future[Tensor]:
        nonlocal reduced
        reduced += bucket.is_last()
        return allreduce_hook(None, bucket)  # pyright: ignore[reportArgumentType] None is the default group

    with joined(MINUTE) as world:
        strategy = Ddp(Toy(), config(), world)
        before = [parameter.grad for parameter in strategy.module.parameters()]
        strategy.model.register_comm_hook(None, count)
        descend(strategy, world, range(4), parts=parts)
        return reduced, before


def test_gradients_are_reduced_once_a_step_for_any_number_of_micro_batches() -> None:
    for reduced, before in results(on_ranks(2, count_reductions, 3)):
        assert reduced == 4
        assert set(before) == {None}


def compress() -> dict[str, list[Tensor]]:
    """Returns one gradient with each hook, and the weights after three steps with bf16."""
    with joined(MINUTE) as world:
        found: dict[str, list[Tensor]] = {}
        for hook in ("none", "bf16", "fp16"):
            strategy = begin(Toy(), world, comm_hook=hook)
            with strategy.micro_batch(last=True):
                loss(strategy.model(inputs(1, part=0, rank=world.rank))).backward()
            found[hook] = [item.grad.clone() for item in strategy.model.parameters() if item.grad is not None]
        strategy = begin(Toy(), world, comm_hook="bf16")
        descend(strategy, world, range(3))
        return {**found, "trained": weights(strategy.model)}


def test_compressed_gradients_are_the_mean_within_the_dtypes_precision() -> None:
    one, other = results(on_ranks(2, compress))
    largest = max(float(gradient.abs().max()) for gradient in one["none"])
    for hook, digits in (("bf16", 8), ("fp16", 11)):
        assert close(one[hook], one["none"], within=4 * largest * 2**-digits)
        assert not close(one[hook], one["none"], within=1e-9)
        assert equal(one[hook], other[hook])
    assert equal(one["trained"], other["trained"])
    assert all(gradient.dtype == torch.float64 for gradient in one["fp16"])
