"""Ranks that compute different numbers continue prompts by rank 0's tokens: each call of a sharded model needs all."""

from collections.abc import Sequence
from datetime import timedelta
import math
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, distributed, nn

from tests.trainer.ranks import on_ranks, results
from trainer.data.sequences import Prompt
from trainer.recipes.continuations import CALL_TOKENS, continue_prompts
from trainer.weights.language import Origin
from trainer.world import World, joined

END, NEW_TOKENS = 0, 3 * CALL_TOKENS


class Together(nn.Module):
    """A model whose calls are collectives. On each rank it gives one likeliest token after another."""

    def __init__(self, tokens: Sequence[int | None]) -> None:
        super().__init__()
        self._tokens = iter(tokens)

    def forward(self, input_ids: Tensor, **_: Any) -> SimpleNamespace:
        distributed.all_reduce(torch.ones(1))
        token = next(self._tokens)
        logits = torch.zeros(len(input_ids), 1, 9)
        logits[:, :, token or 0] = 1.0 if token is not None else math.nan
        return SimpleNamespace(logits=logits, past_key_values=None)


class Tokenizer:
    """Writes tokens as digits."""

    eos_token_id = END
    all_special_ids = (END,)
    added_tokens_decoder = {END: ""}

    def decode(self, tokens: Sequence[int], **_: Any) -> str:
        return "".join(str(token) for token in tokens)


def continue_each(*tokens: Sequence[Sequence[int | None]]) -> list[tuple[list[str], int]]:
    """Returns for each case the continuation of a prompt, and how often progress was told."""
    with joined(timedelta(seconds=20)) as world:
        return [_continue(each[world.rank], world) for each in tokens]


def _continue(tokens: Sequence[int | None], world: World) -> tuple[list[str], int]:
    told: list[None] = []
    config: Any = SimpleNamespace(eos_token_id=END, max_position_embeddings=99)
    tokenizer: Any = Tokenizer()
    origin = Origin(None, None, tokenizer, config, "the base", None)
    found = continue_prompts(
        Together(tokens),
        [Prompt([3, 4], [5])],
        origin=origin,
        new_tokens=NEW_TOKENS,
        device=world.device,
        world=world,
        on_tokens=lambda: told.append(None),
    )
    return [each.continuation for each in found], len(told)


def test_all_ranks_end_after_rank_0s_last_token() -> None:
    cases = (([7, 7, END], "77"), ([1] * 9 + [None], "1" * 9), ([2] * NEW_TOKENS, "2" * NEW_TOKENS))
    others = [5, END, None, *[6] * NEW_TOKENS]
    expected = [([text], len(text) // CALL_TOKENS) for _, text in cases]
    assert results(on_ranks(2, continue_each, *([first, others] for first, _ in cases))) == [expected] * 2
