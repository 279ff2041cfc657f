import pytest
import torch
from torch.distributions import Beta
from torch.nn import functional

from trainer.data.batch import Batch
from trainer.data.mixup import mixup


def test_a_mixed_batch_is_a_blend_of_pairs_and_its_loss_the_blend_of_their_losses() -> None:
    inputs, targets = torch.rand(6, 1, 4, 4), torch.tensor([0, 2, 1, 1, 0, 2])
    torch.manual_seed(3)
    blended = mixup(Batch(inputs, targets), 0.4, classes=3)
    torch.manual_seed(3)
    share, other = Beta(0.4, 0.4).sample(), torch.randperm(6)
    assert torch.allclose(blended.inputs, share * inputs + (1 - share) * inputs[other])

    logits = torch.randn(6, 3)
    alone = functional.cross_entropy(logits, targets, reduction="none")
    paired = functional.cross_entropy(logits, targets[other], reduction="none")
    expected = share * alone + (1 - share) * paired
    losses = functional.cross_entropy(logits, blended.targets, reduction="none")
    assert torch.allclose(losses, expected, atol=1e-6)
    assert functional.cross_entropy(logits, blended.targets).item() == pytest.approx(expected.mean().item())


def test_each_batch_draws_from_torchs_generator() -> None:
    batch = Batch(torch.rand(8, 2), torch.arange(8))
    torch.manual_seed(0)
    state = torch.random.get_rng_state()
    first, second = (mixup(batch, 1.0, classes=8).targets for _ in range(2))
    torch.random.set_rng_state(state)
    assert torch.equal(mixup(batch, 1.0, classes=8).targets, first)
    assert not torch.equal(first, second)
    assert first.sum(1).tolist() == pytest.approx([1.0] * 8)
