"""Generates texts with the language model of a checkpoint."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor

from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.recipes.causal import CausalLm
from torchyard.models.generation import Sampling, continued
from torchyard.models.loaded import Loaded
from torchyard.models.opening import Language
from torchyard.models.pieces import Pieces
from torchyard.models.progress import shown
from torchyard.models.prompts import Prompt
from torchyard.models.textlines import lines

NEW_TOKENS = 128
BATCH_SIZE = 8


@dataclass(frozen=True)
class Generation:
    """A generated text.

    Attributes:
        prompt: The prompt: a text or a list of messages.
        text: The text that continues it.
        tokens: The number of generated tokens, with the one that ended the text.
        finish: `stop`: the model ended the text; `length`: the limit of tokens did.
    """

    prompt: Prompt
    text: str
    tokens: int
    finish: Literal["stop", "length"]

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields as JSON."""
        return {"prompt": self.prompt, "text": self.text, "tokens": self.tokens, "finish": self.finish}


class Generator(Loaded):
    """A language model. `module` is a transformers model, with the updates of the adapter. `context` is its maximum
    number of tokens.
    """

    def __init__(self, language: Language, *, state: Mapping[str, Any], config: CausalLm, device: torch.device) -> None:
        super().__init__(language.module, state=state, config=config, device=device)
        self.language = language
        self.prompts = language.prompts
        self.context = language.context
        """The most tokens of a prompt and what continues it."""

    @property
    def facts(self) -> dict[str, Any]:
        return self.language.facts

    def generate(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int | None = None,
    ) -> str:
        """Returns the text that continues a prompt.

        Args:
            prompt: A text, or a list of messages `{"role": …, "content": …}`.
            max_new_tokens: Maximum number of new tokens; None: 128, or as many as fit into `context`.
            temperature: 0 takes the most likely token; above 0 samples.
            top_p: Sample among the most likely tokens with this total probability.
            seed: The same seed gives the same text.

        Raises:
            DataError: The prompt is not valid or too long.
            ConfigError: An argument is out of range, or the device has too little memory.
        """
        return "".join(
            self.stream(prompt, max_new_tokens=max_new_tokens, temperature=temperature, top_p=top_p, seed=seed)
        )

    def stream(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int | None = None,
    ) -> Iterator[str]:
        """Yields the text that `generate` returns, piece by piece.

        Args:
            prompt: A text, or a list of messages.
            max_new_tokens: Maximum number of new tokens.
            temperature: 0 takes the most likely token.
            top_p: Sample among the most likely tokens with this total probability.
            seed: The same seed gives the same text.
        """
        sampling = Sampling(temperature, top_p, seed)
        (tokens,) = self._read([prompt], max_new_tokens)
        steps = self._steps([prompt], [tokens], self._most(tokens, max_new_tokens), sampling)
        return _pieces(steps, Pieces(self.prompts.decode, tokens), self.prompts.stops(prompt))

    def predict(self, source: Any, *, batch_size: int = BATCH_SIZE, progress: bool | None = None, **how: Any) -> Any:
        """Generates for one prompt, or for many.

        Args:
            source: A prompt, a list of prompts, or the `Path` of a file with one prompt a line.
            batch_size: Prompts in a batch.
            progress: Show a progress bar on a terminal; None: for several batches.
            **how: Arguments of `generate`. Each text is the same as from `generate`.

        Returns:
            A `Generation`; a list of them for a list or a file.

        Raises:
            DataError: A prompt is not valid or too long.
            ConfigError: An argument is out of range, or the device has too little memory.
        """
        prompts, are_many = listed(source)
        found = list(self.predictions(prompts, batch_size=batch_size, progress=progress, **how))
        return found if are_many else found[0]

    def predictions(
        self,
        prompts: Sequence[Prompt],
        *,
        batch_size: int = BATCH_SIZE,
        progress: bool | None = None,
        max_new_tokens: int | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int | None = None,
    ) -> Iterator[Generation]:
        """Yields a `Generation` for each prompt, batch after batch.

        Args:
            prompts: The prompts.
            batch_size: Prompts in a batch.
            progress: Show a progress bar on a terminal; None: for several batches.
            max_new_tokens: Maximum number of new tokens.
            temperature: 0 takes the most likely token.
            top_p: Sample among the most likely tokens with this total probability.
            seed: The same seed gives the same text.

        Raises:
            DataError: A prompt is not valid or too long.
            ConfigError: An argument is out of range, or the device has too little memory.
        """
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1; got {batch_size}")
        sampling = Sampling(temperature, top_p, seed)
        read = self._read(prompts, max_new_tokens)
        wanted = len(prompts) > batch_size if progress is None else progress
        with shown(len(prompts), wanted=wanted) as advance:
            both = [*zip(prompts, read, strict=True)]
            for batch in (both[first : first + batch_size] for first in range(0, len(both), batch_size)):
                for most, same in groupby(batch, lambda each: self._most(each[1], max_new_tokens)):
                    yield from self._batch([*same], most, sampling)
                advance(len(batch))

    def _batch(self, batch: Sequence[tuple[Prompt, list[int]]], most: int, sampling: Sampling) -> Iterator[Generation]:
        prompts, read = [prompt for prompt, _ in batch], [tokens for _, tokens in batch]
        steps = [*self._steps(prompts, read, most, sampling)]
        for place, (prompt, before) in enumerate(batch):
            made = [token for step in steps if (token := step[place]) is not None]
            stops = self.prompts.stops(prompt)
            text = "".join(_pieces(([token] for token in made), Pieces(self.prompts.decode, before), stops))
            yield Generation(prompt, text, len(made), "stop" if made[-1] in stops else "length")

    def _most(self, tokens: Sequence[int], wanted: int | None) -> int:
        return min(NEW_TOKENS, self.context - len(tokens)) if wanted is None else wanted

    def _read(self, prompts: Sequence[Prompt], wanted: int | None) -> list[list[int]]:
        """Returns the tokens of prompts. Raises DataError if one has no room for those that are wanted, or for one."""
        most = 1 if wanted is None else wanted
        if most < 1:
            raise ConfigError(f"max_new_tokens must be at least 1; got {most}")
        found = self.prompts.read(prompts)
        longest = max(map(len, found), default=0)
        if longest + most > self.context:
            follow = "1 is" if most == 1 else f"{most} are"
            raise DataError(
                f"a prompt has {longest} tokens, and {follow} to follow: the model has room for {self.context}"
            )
        return found

    def _steps(
        self, prompts: Sequence[Prompt], read: Sequence[list[int]], most: int, sampling: Sampling
    ) -> Iterator[list[int | None]]:
        stops = [self.prompts.stops(prompt) for prompt in prompts]
        return continued(self._forward, read, most=most, stops=stops, sampling=sampling, device=self.device)

    def _forward(self, **inputs: Any) -> tuple[Tensor, Any]:
        with self.computing(advice="use a smaller batch_size, or shorter prompts"):
            found = self.module(**inputs, use_cache=True, logits_to_keep=1)
            return found.logits[:, -1].float(), found.past_key_values


def listed(source: Any) -> tuple[list[Prompt], bool]:
    """Returns the prompts in a source, and whether it may have several: a list, but one of messages, or a file."""
    if isinstance(source, Path):
        return [*lines(source, strip=False)], True
    if isinstance(source, (list, tuple)):
        several = cast("list[Any]", source)
        if not several or not isinstance(several[0], Mapping):
            return [single for item in several for single in listed(item)[0]], True
    return [source], False


def _pieces(steps: Iterator[list[int | None]], pieces: Pieces, stops: frozenset[int]) -> Iterator[str]:
    for (token,) in steps:
        if token is not None and token not in stops and (piece := pieces.push(token)):
            yield piece
    if left := pieces.end():
        yield left
