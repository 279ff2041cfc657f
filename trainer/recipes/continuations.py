"""How a language model continues some prompts of the validation split: what people read to see what it has learned."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
import json
from typing import Any

import torch
from torch import Tensor, nn

from torchyard.contract.errors import DataError
from torchyard.models.generation import Sampling, continued
from torchyard.run import Run
from trainer.data.sequences import Prompt
from trainer.weights.initial import train_mode
from trainer.weights.language import Origin
from trainer.world import World

KEY = "samples"
CALL_TOKENS = 8
"""Tokens between two calls of `on_tokens`."""
_SHOWN = 900
"""Characters of a prompt that a caption has, at most: its end."""


@dataclass(frozen=True)
class Continuation:
    """A prompt, how the model goes on, and how the example does."""

    prompt: str
    continuation: str
    expected: str


def continue_prompts(
    model: nn.Module,
    prompts: Sequence[Prompt],
    *,
    origin: Origin,
    new_tokens: int,
    device: torch.device,
    world: World | None,
    on_tokens: Callable[[], None],
) -> list[Continuation]:
    """Continues the prompts by the likeliest tokens, at most `new_tokens`, to the end of the text or of the turn.

    All ranks call the model and `on_tokens` equally often: rank 0's tokens are everybody's. Draws no random numbers.
    Leaves the model in training mode. Where the model gives no probabilities, its continuation ends: the loss says
    that, too.
    """
    if not prompts:
        return []
    most = min(new_tokens, origin.context // 2)
    begun = [prompt.tokens[-(origin.context - most) :] for prompt in prompts]
    stops = [_stops(origin, prompt) for prompt in prompts]
    model.eval()
    try:
        # A compiled model would be compiled again for each prompt's length, and for its cache.
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):
            made = _continued(model, begun, most=most, stops=stops, device=device, world=world, on_tokens=on_tokens)
    finally:
        train_mode(model)
    return [
        Continuation(
            prompt=origin.decode(prompt.tokens),
            continuation=origin.decode(tokens, special=False),
            expected=origin.decode(prompt.rest[:most], special=False),
        )
        for prompt, tokens in zip(prompts, made, strict=True)
    ]


def to_json(continuations: Sequence[Continuation]) -> bytes:
    """Returns the file that people fetch: in ASCII, so that no control character reaches a terminal."""
    return json.dumps([asdict(each) for each in continuations], indent=1).encode()


def show(continuations: Sequence[Continuation], run: Run, step: int) -> None:
    """Shows the continuations, each below its prompt and beside how the example goes on."""
    captions = [each.prompt if len(each.prompt) <= _SHOWN else f"…{each.prompt[-_SHOWN:]}" for each in continuations]
    if continuations:
        made, expected = [each.continuation for each in continuations], [each.expected for each in continuations]
        run.log_text(KEY, made, step=step, caption=captions, expected=expected)


def _continued(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    *,
    most: int,
    stops: Sequence[frozenset[int]],
    device: torch.device,
    world: World | None,
    on_tokens: Callable[[], None],
) -> list[list[int]]:
    def forward(**inputs: Any) -> tuple[Tensor, Any]:
        outputs = model(**inputs, use_cache=True, logits_to_keep=1)
        return outputs.logits[:, -1], outputs.past_key_values

    made: list[list[int]] = [[] for _ in prompts]
    agree = list[int] if world is None else world.integers_from_rank_0
    steps = continued(forward, prompts, most=most, stops=stops, sampling=Sampling(), device=device, agree=agree)
    with suppress(DataError):
        for count, row in enumerate(steps, start=1):
            for tokens, token, own in zip(made, row, stops, strict=True):
                if token is not None and token not in own:
                    tokens.append(token)
            if count % CALL_TOKENS == 0:
                on_tokens()
    return made


def _stops(origin: Origin, prompt: Prompt) -> frozenset[int]:
    """Returns the tokens that end a text, and what ends the turn, which may be another one."""
    own, tokenizer = origin.config.eos_token_id, origin.tokenizer
    special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    turn = [token for token in prompt.rest[-1:] if token in special]
    both = [tokenizer.eos_token_id, *(own if isinstance(own, list) else [own]), *turn]
    return frozenset(token for token in both if token is not None)
