from collections.abc import Iterator
import random
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from trainer.data.batch import Batch
from trainer.data.mixup import mixup
from trainer.randomness import random_state, seed_everything, set_random_state


def test_a_mixed_batch_is_a_blend_of_pairs_and_its_loss_the_blend_of_their_losses() -> None:
    inputs, targets = torch.rand(6, 1, 4, 4), torch.tensor([0, 2, 1, 1, 0, 2])
    random.seed(3)
    torch.manual_seed(3)
    blended = mixup(Batch(inputs, targets), 0.4, classes=3)
    random.seed(3)
    torch.manual_seed(3)
    share, other = random.betavariate(0.4, 0.4), torch.randperm(6)
    assert torch.allclose(blended.inputs, share * inputs + (1 - share) * inputs[other])

    logits = torch.randn(6, 3)
    alone = functional.cross_entropy(logits, targets, reduction="none")
    paired = functional.cross_entropy(logits, targets[other], reduction="none")
    expected = share * alone + (1 - share) * paired
    losses = functional.cross_entropy(logits, blended.targets, reduction="none")
    assert torch.allclose(losses, expected, atol=1e-6)
    assert functional.cross_entropy(logits, blended.targets).item() == pytest.approx(expected.mean().item())


def test_each_batch_draws_from_the_global_generators() -> None:
    batch = Batch(torch.rand(8, 2), torch.arange(8))
    seed_everything(0)
    state = random_state()
    first, second = (mixup(batch, 1.0, classes=8).targets for _ in range(2))
    set_random_state(state)
    assert torch.equal(mixup(batch, 1.0, classes=8).targets, first)
    assert not torch.equal(first, second)
    assert first.sum(1).tolist() == pytest.approx([1.0] * 8)


@pytest.mark.parametrize("alpha", [0.2, pytest.param(1.0, marks=pytest.mark.thorough)])
def test_shares_have_the_mean_and_the_variance_of_a_beta_distribution(alpha: float) -> None:
    random.seed(0)
    shares = torch.tensor(list(_shares(alpha, count=2000)))
    assert shares.mean().item() == pytest.approx(0.5, abs=0.03)
    assert shares.var().item() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.05)


def _shares(alpha: float, *, count: int) -> Iterator[float]:
    """Yields the larger or the smaller share of blends of two samples."""
    batch = Batch(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]))
    while count:
        inputs = mixup(batch, alpha, classes=2).inputs
        if inputs[0].item() or inputs[1].item() != 1:  # blended with the other one
            count -= 1
            yield inputs[1].item()


class _Fetches(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def test_a_blend_fetches_no_number_from_a_tensor() -> None:
    with _Fetches() as fetches:
        mixup(Batch(torch.rand(8, 2), torch.arange(8)), 0.4, classes=8)
    assert fetches.count == 0
