"""The loss in chunks is torch's cross-entropy, and so are its gradients."""

from collections.abc import Callable
import math
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from tests.approved import Approved
from torchyard.models.chunked import Squash, cross_entropy

TOKENS, SIZE, VOCABULARY = 37, 16, 101
LABELS = torch.arange(TOKENS) * 5 % VOCABULARY


def drawn(*, bias: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    drawer = torch.Generator().manual_seed(5)
    shapes = [(TOKENS, SIZE), (VOCABULARY, SIZE), (VOCABULARY,)]
    hidden, weight, third = (torch.randn(shape, generator=drawer).requires_grad_() for shape in shapes)
    return hidden, weight, third if bias else None


def whole(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, squash: Squash) -> Tensor:
    logits = torch.nn.functional.linear(hidden, weight, bias).float() * squash.scale
    if squash.softcap is not None:
        logits = torch.tanh(logits / squash.softcap) * squash.softcap
    return torch.nn.functional.cross_entropy(logits, labels)


@pytest.mark.parametrize("squash", [Squash(), Squash(scale=0.25), Squash(softcap=2.0), Squash(scale=3.0, softcap=5.0)])
@pytest.mark.parametrize("chunk_tokens", [1, 8, 37, 1000])
@pytest.mark.parametrize("bias", [False, True])
def test_the_loss_and_its_gradients_are_torchs(squash: Squash, chunk_tokens: int, bias: bool) -> None:
    ours, theirs = drawn(bias=bias), drawn(bias=bias)
    loss = cross_entropy(ours[0], ours[1], ours[2], LABELS, chunk_tokens=chunk_tokens, squash=squash)
    expected = whole(theirs[0], theirs[1], theirs[2], LABELS, squash)
    torch.testing.assert_close(loss, expected, atol=1e-6, rtol=0)
    (loss * 3).backward()
    (expected * 3).backward()
    for own, other in zip(ours, theirs, strict=True):
        if own is not None and other is not None:
            torch.testing.assert_close(own.grad, other.grad, atol=1e-6, rtol=0)


def taken(hidden: Tensor, weight: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Returns the loss and both gradients."""
    loss = cross_entropy(hidden, weight, None, LABELS, chunk_tokens=8)
    loss.backward()
    return loss.detach(), hidden.grad, weight.grad


def test_a_weight_that_does_not_train_gets_no_gradient() -> None:
    hidden, weight, _ = drawn(bias=False)
    expected = taken(hidden, weight)[1]
    again, frozen = hidden.detach().clone().requires_grad_(), weight.detach()
    with Allocations() as seen:
        _, gradient, none = taken(again, frozen)
    assert none is None
    assert gradient is not None
    assert expected is not None
    assert torch.equal(gradient, expected)
    assert (VOCABULARY, SIZE) not in seen.shapes


def test_the_logits_of_all_tokens_are_never_in_memory() -> None:
    hidden, weight, _ = drawn(bias=False)
    with Allocations() as seen:
        taken(hidden, weight)
    assert max(math.prod(shape) for shape in seen.shapes) == VOCABULARY * SIZE  # the gradient of the weight
    assert (8, VOCABULARY) in seen.shapes
    assert (TOKENS, VOCABULARY) not in seen.shapes


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_without_gradients_it_is_only_the_loss(context: Callable[[], Any]) -> None:
    hidden, weight, _ = drawn(bias=False)
    expected = taken(*drawn(bias=False)[:2])[0]
    with context(), Allocations() as seen:
        loss = cross_entropy(hidden, weight, None, LABELS, chunk_tokens=8)
    assert float(loss) == float(expected)
    assert not loss.requires_grad
    assert {shape for shape in seen.shapes if math.prod(shape) > 8 * VOCABULARY} == set()
    assert (TOKENS, SIZE) not in seen.shapes


def test_the_gradients_are_taken_once_and_have_none_of_their_own(approved: Approved) -> None:
    hidden, weight, _ = drawn(bias=False)
    loss = cross_entropy(hidden, weight, None, LABELS, chunk_tokens=8)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError) as raised:
        loss.backward()
    assert str(raised.value) == approved("message")
    loss = cross_entropy(hidden, weight, None, LABELS, chunk_tokens=8)
    (gradient,) = torch.autograd.grad(loss, hidden, create_graph=True)
    with pytest.raises(RuntimeError) as raised:
        gradient.sum().backward()
    assert str(raised.value) == approved("element tensors does")


@pytest.mark.parametrize("spoiled", ["hidden", "weight", "scale"])
def test_what_is_not_a_number_passes_on_to_all_gradients(spoiled: str) -> None:
    hidden, weight, _ = drawn(bias=False)
    with torch.no_grad():
        if spoiled != "scale":
            {"hidden": hidden, "weight": weight}[spoiled][3, 3] = torch.nan
    loss = cross_entropy(hidden, weight, None, LABELS, chunk_tokens=8)
    value = loss.detach() * (torch.inf if spoiled == "scale" else 1)
    loss.backward(value * 0 + 0.5)  # as the trainer does, so that all ranks hear of it
    for leaf in (hidden, weight):
        assert leaf.grad is not None
        assert bool(leaf.grad.isnan().all())


def test_under_autocast_it_is_as_near_as_torchs_own() -> None:
    exact = taken(*drawn(bias=False)[:2])
    with torch.autocast("cpu", torch.bfloat16):
        hidden, weight, _ = drawn(bias=False)
        loss = cross_entropy(hidden, weight, None, LABELS, chunk_tokens=8)
        theirs = drawn(bias=False)[:2]
        other = whole(theirs[0], theirs[1], None, LABELS, Squash())
    loss.backward()
    other.backward()
    assert loss.dtype == torch.float32
    assert abs(float(loss.detach() - exact[0])) <= abs(float(other.detach() - exact[0])) * 1.5 + 1e-4
    for leaf, expected, own in zip((hidden, weight), exact[1:], theirs, strict=True):
        assert leaf.grad is not None
        assert own.grad is not None
        assert expected is not None
        assert leaf.grad.dtype == torch.float32
        assert float((leaf.grad - expected).norm()) <= float((own.grad - expected).norm()) * 1.5


def test_a_base_in_bfloat16_takes_hidden_states_in_float32() -> None:
    hidden, weight, _ = drawn(bias=False)
    loss = cross_entropy(hidden, weight.detach().bfloat16(), None, LABELS, chunk_tokens=8)
    loss.backward()
    assert hidden.grad is not None
    assert hidden.grad.dtype == torch.float32
    torch.testing.assert_close(loss.detach(), taken(*drawn(bias=False)[:2])[0], atol=0.05, rtol=0)


def test_a_tied_weight_gets_both_gradients() -> None:
    def gradient(loss_of: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        weight = drawn(bias=False)[1].detach().requires_grad_()
        loss_of(weight[LABELS] * 2, weight).backward()
        assert weight.grad is not None
        return weight.grad

    ours = gradient(lambda hidden, weight: cross_entropy(hidden, weight, None, LABELS, chunk_tokens=8))
    theirs = gradient(lambda hidden, weight: whole(hidden, weight, None, LABELS, Squash()))
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)


def test_layers_that_are_computed_again_give_the_same_gradients() -> None:
    hidden, weight, _ = drawn(bias=False)
    layer = torch.nn.Linear(SIZE, SIZE)

    def gradients(inner: Callable[[Tensor], Tensor]) -> list[Tensor]:
        loss = cross_entropy(inner(hidden), weight, None, LABELS, chunk_tokens=8)
        return list(torch.autograd.grad(loss, [hidden, weight, layer.weight]))

    again = gradients(lambda given: cast(Tensor, checkpoint(layer, given, use_reentrant=False)))
    assert all(torch.equal(own, other) for own, other in zip(again, gradients(layer), strict=True))


class Allocations(TorchDispatchMode):
    """Collects the shapes of all tensors that operations make, but for views."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: set[tuple[int, ...]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        known = {
            tensor.untyped_storage().data_ptr() for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, Tensor)
        }
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and tensor.untyped_storage().data_ptr() not in known:
                self.shapes.add(tuple(tensor.shape))
        return result
