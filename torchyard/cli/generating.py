"""Writes what a language model says to prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import json
import sys
from typing import TYPE_CHECKING, Any

import typer

from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.models.generator import Generator
    from torchyard.models.prompts import Prompt

RECIPE = "causal-lm"
_MOST_SHOWN = 72


@dataclass(frozen=True)
class Asked:
    """The options of a language model, by their names on the command line. None: not given."""

    options: Mapping[str, Any]

    def refuse_for(self, recipe: str) -> None:
        """Raises BadParameter if one is given."""
        if given := [name for name, value in self.options.items() if value is not None]:
            raise typer.BadParameter(f"{given[0]} works only with language models; this is a {recipe} model")

    @property
    def how(self) -> dict[str, Any]:
        """Returns them as `Generator.stream` takes them."""
        names = {"--max-tokens": "max_new_tokens", "--temperature": "temperature", "--top-p": "top_p", "--seed": "seed"}
        return {own: self.options[name] for name, own in names.items() if self.options[name] is not None}


def generate(model: Generator, texts: Sequence[str], asked: Asked, *, batch_size: int | None, as_json: bool) -> None:
    """Writes what continues each text: to a terminal as it is made, elsewhere when its batch is done."""
    prompts = _prompts(model, texts, asked.options["--system"])
    if sys.stdout.isatty() and not as_json:
        return _stream(model, texts, prompts, asked)
    size: dict[str, Any] = {} if batch_size is None else {"batch_size": batch_size}
    found = model.predictions(prompts, **size, **asked.how)
    for text, generation in zip(texts, found, strict=True):
        if as_json:
            terminal.write(json.dumps({**generation.as_dict(), "prompt": text}))
            continue
        _head(text, of=len(texts))
        terminal.write(generation.text)
    return None


def _prompts(model: Generator, texts: Sequence[str], system: str | None) -> list[Prompt]:
    if system is None:
        return [*texts]
    if not model.prompts.has_template:
        raise typer.BadParameter("--system needs a chat template, and the model's base has none")
    return [[{"role": "system", "content": system}, {"role": "user", "content": text}] for text in texts]


def _stream(model: Generator, texts: Sequence[str], prompts: Sequence[Prompt], asked: Asked) -> None:
    for text, prompt in zip(texts, prompts, strict=True):
        _head(text, of=len(texts))
        for piece in model.stream(prompt, **asked.how):
            terminal.write_piece(piece)
        terminal.write("")


def _head(text: str, *, of: int) -> None:
    """Writes which prompt is answered next, if there are several."""
    if of > 1:
        line = terminal.plain(text)
        terminal.write(f"> {line if len(line) <= _MOST_SHOWN else line[: _MOST_SHOWN - 1] + '…'}")
