"""The mean cross-entropy of a language model's head. The logits of all tokens are never in memory at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


@dataclass(frozen=True, kw_only=True)
class Squash:
    """What a type of models does with the logits of its head."""

    scale: float = 1.0
    """They are multiplied by it."""
    softcap: float | None = None
    """Then they are kept below it: softcap * tanh(logits / softcap)."""


def cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    *,
    chunk_tokens: int,
    squash: Squash | None = None,
) -> Tensor:
    """Returns the mean cross-entropy of `labels` (tokens,) for the logits `hidden @ weight.T + bias`, in float32.

    `hidden` is (tokens, dimensions) and `weight` (vocabulary, dimensions). The logits of `chunk_tokens` tokens exist at
    a time: the gradients are computed in the forward pass, so that nothing is computed twice. They can be taken once,
    and have no gradients of their own. Under autocast the products are computed in its number format, as those of a
    linear layer are; the softmax and all sums are in float32.
    """
    dtype = torch.get_autocast_dtype(hidden.device.type) if torch.is_autocast_enabled(hidden.device.type) else None
    chunks = _Chunks(chunk_tokens, squash or Squash(), dtype or weight.dtype, gradients=torch.is_grad_enabled())
    return _CrossEntropy.apply(hidden, weight, bias, labels, chunks)  # pyright: ignore[reportReturnType] it is untyped


@dataclass(frozen=True)
class _Chunks:
    tokens: int
    squash: Squash
    dtype: torch.dtype
    """The number format of the products."""
    gradients: bool


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0917 # pyright: ignore[reportIncompatibleMethodOverride] autograd passes them in order
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, chunks: _Chunks
    ) -> Tensor:
        wanted = [chunks.gradients and needed for needed in ctx.needs_input_grad[:3]]
        # Not saved by autograd, which would keep them until the whole backward pass has ended.
        with torch.autocast(hidden.device.type, enabled=False):
            loss, ctx.gradients = _loss(hidden, weight, bias, labels, chunks=chunks, wanted=wanted)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride] it has one output
        if ctx.gradients is None:
            raise RuntimeError("the gradients of this loss were taken before: they can be taken once")
        gradients, ctx.gradients = ctx.gradients, None
        return *(None if own is None else own.mul_(gradient) for own in gradients), None, None


def _loss(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, *, chunks: _Chunks, wanted: Sequence[bool]
) -> tuple[Tensor, list[Tensor | None]]:
    """Returns the mean loss, and the wanted gradients for hidden, weight and bias."""
    matrix = weight.to(chunks.dtype)
    added = None if bias is None else bias.to(chunks.dtype)
    for_hidden = torch.empty_like(hidden) if wanted[0] else None
    for_weight = torch.zeros_like(weight, dtype=torch.float32) if wanted[1] else None
    for_bias = torch.zeros_like(weight[:, 0], dtype=torch.float32) if wanted[2] else None
    total = torch.zeros((), dtype=torch.float32, device=hidden.device)
    count = max(1, len(labels))
    for start in range(0, len(labels), chunks.tokens):
        rows = slice(start, start + chunks.tokens)
        inputs = hidden[rows].to(chunks.dtype)
        loss, logits = _of_chunk(inputs, matrix, added, labels[rows], chunks.squash, gradients=any(wanted))
        total += loss
        if logits is None:
            continue
        slopes = logits.mul_(chunks.squash.scale / count)
        if for_bias is not None:
            for_bias += slopes.sum(0)
        slopes = slopes.to(chunks.dtype)
        if for_hidden is not None:
            for_hidden[rows] = slopes @ matrix
        if for_weight is not None:
            for_weight += slopes.T @ inputs
    gradients = [
        for_hidden,
        None if for_weight is None else for_weight.to(weight.dtype),
        None if for_bias is None or bias is None else for_bias.to(bias.dtype),
    ]
    return total / len(labels) if len(labels) else total * torch.nan, gradients


def _of_chunk(
    inputs: Tensor, matrix: Tensor, bias: Tensor | None, labels: Tensor, squash: Squash, *, gradients: bool
) -> tuple[Tensor, Tensor | None]:
    """Returns the sum of the losses, and its gradient for the logits before they were scaled, if it is wanted."""
    logits = torch.nn.functional.linear(inputs, matrix, bias).float()
    if squash.scale != 1.0:
        logits *= squash.scale
    bent: Tensor | None = None
    if squash.softcap is not None:
        bent = logits.div_(squash.softcap).tanh_()
        logits = bent * squash.softcap
    picked = labels[:, None]
    top = torch.logsumexp(logits, 1, keepdim=True)
    loss = (top - logits.gather(1, picked)).sum()
    if not gradients:
        return loss, None
    slopes = logits.sub_(top).exp_().scatter_add_(1, picked, picked.new_full(picked.shape, -1, dtype=logits.dtype))
    if bent is not None:
        slopes.mul_(bent.square_().neg_().add_(1))
    return loss, slopes
