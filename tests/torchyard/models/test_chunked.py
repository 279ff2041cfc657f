"""The loss in chunks is torch's cross-entropy, and so are its gradients."""

import pytest
import torch
from torch import Tensor

from torchyard.models.chunked import Squash, cross_entropy

TOKENS, SIZE, VOCABULARY = 37, 16, 101


def drawn(*, bias: bool) -> list[Tensor | None]:
    drawer = torch.Generator().manual_seed(5)
    shapes = [(TOKENS, SIZE), (VOCABULARY, SIZE), (VOCABULARY,)]
    tensors = [torch.randn(shape, generator=drawer).requires_grad_() for shape in shapes]
    return [*tensors[:2], tensors[2] if bias else None]


def whole(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, squash: Squash) -> Tensor:
    logits = torch.nn.functional.linear(hidden, weight, bias).float() * squash.scale
    if squash.softcap is not None:
        logits = torch.tanh(logits / squash.softcap) * squash.softcap
    return torch.nn.functional.cross_entropy(logits, labels)


@pytest.mark.parametrize("squash", [Squash(), Squash(scale=0.25), Squash(softcap=2.0), Squash(scale=3.0, softcap=5.0)])
@pytest.mark.parametrize("chunk_tokens", [1, 8, 37, 1000])
@pytest.mark.parametrize("bias", [False, True])
def test_the_loss_and_its_gradients_are_torchs(squash: Squash, chunk_tokens: int, bias: bool) -> None:
    labels = torch.arange(TOKENS) * 5 % VOCABULARY
    ours, theirs = drawn(bias=bias), drawn(bias=bias)
    loss = cross_entropy(ours[0], ours[1], ours[2], labels, chunk_tokens=chunk_tokens, squash=squash)  # pyright: ignore[reportArgumentType] only the bias is None
    expected = whole(theirs[0], theirs[1], theirs[2], labels, squash)  # pyright: ignore[reportArgumentType] only the bias is None
    torch.testing.assert_close(loss, expected, atol=1e-6, rtol=0)
    (loss * 3).backward()
    (expected * 3).backward()
    for own, other in zip(ours, theirs, strict=True):
        if own is not None and other is not None:
            torch.testing.assert_close(own.grad, other.grad, atol=1e-6, rtol=0)
