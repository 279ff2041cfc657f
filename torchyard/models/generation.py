"""Continues tokens with a language model, one token after the other."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
import math
import secrets
from typing import Any

import torch
from torch import Tensor

from torchyard.contract.errors import ConfigError, DataError


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen."""

    temperature: float = 0.0
    """0: the likeliest token; 1: by the model's probabilities; above: flatter than these."""
    top_p: float = 1.0
    """Only the likeliest tokens are chosen from that have this share of the probability together."""
    seed: int | None = None
    """The same seed gives the same text. None: another one each time."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ConfigError(f"temperature must be 0 or above; got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p must be above 0, and at most 1; got {self.top_p}")
        if self.seed is not None and not 0 <= self.seed < 1 << 63:
            raise ConfigError(f"seed must be from 0 to 2^63 - 1; got {self.seed}")

    def random(self) -> torch.Generator:
        """Returns the random numbers of one prompt. Those of the program are left alone."""
        return torch.Generator().manual_seed(secrets.randbits(63) if self.seed is None else self.seed)


NO_TOKEN = -1
"""Stands for the next token where the model's logits give no probabilities, as they are not finite."""

Forward = Callable[..., tuple[Tensor, Any]]
"""Takes `input_ids`, `attention_mask`, `position_ids` and `past_key_values` as models of transformers do.

Returns the logits of the last position (rows, tokens), and what to give as `past_key_values` next.
"""


def continued(
    forward: Forward,
    prompts: Sequence[Sequence[int]],
    *,
    most: int,
    stops: Sequence[Collection[int]],
    sampling: Sampling,
    device: torch.device,
    agree: Callable[[list[int]], list[int]] = list,
) -> Iterator[list[int | None]]:
    """Yields the next token of each prompt, `most` times or until all have ended: with a token of its `stops`.

    A prompt that has ended gets None. No prompt is empty. Raises DataError if the model gives no probabilities.

    `agree`: returns the tokens that count instead of those that were chosen, which are all NO_TOKEN if there are no
    probabilities. Where several processes call one model together, all of them then end after the same token.
    """
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    width = int(lengths.max())
    ids = torch.tensor([[*[0] * (width - len(prompt)), *prompt] for prompt in prompts], device=device)
    places = (torch.arange(width) - (width - lengths)[:, None]).to(device)  # negative in the padding, on the left
    mask = None if bool((lengths == width).all()) else (places >= 0).long()
    positions = places.clamp(min=0)
    randoms = [sampling.random() for _ in prompts]
    past: Any = None
    running = [True] * len(prompts)
    for _ in range(most):
        logits, past = forward(input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=past)
        tokens = agree(_chosen(logits, sampling, randoms))
        if NO_TOKEN in tokens:
            raise DataError("the model gives numbers that are not finite: its weights cannot be used")
        yield [token if runs else None for token, runs in zip(tokens, running, strict=True)]
        running = [runs and token not in own for token, runs, own in zip(tokens, running, stops, strict=True)]
        if not any(running):
            return
        ids = torch.tensor(tokens, device=device)[:, None]
        positions = positions[:, -1:] + 1
        mask = None if mask is None else torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)


def _chosen(logits: Tensor, sampling: Sampling, randoms: Sequence[torch.Generator]) -> list[int]:
    if not bool(logits.isfinite().all()):
        return [NO_TOKEN] * len(logits)
    if sampling.temperature == 0:
        return logits.argmax(-1).tolist()
    # On the CPU, in double precision: the same seed gives the same text on all devices that give the same logits.
    rows = logits.cpu().double()
    return [_drawn(row, sampling, random) for row, random in zip(rows, randoms, strict=True)]


def _drawn(logits: Tensor, sampling: Sampling, random: torch.Generator) -> int:
    shares, order = ((logits - logits.max()) / sampling.temperature).softmax(-1).sort(descending=True, stable=True)
    if sampling.top_p < 1:
        shares[shares.cumsum(-1) - shares >= sampling.top_p] = 0  # the first one always stays
    return int(order[torch.multinomial(shares, 1, generator=random)])
