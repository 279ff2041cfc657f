"""Makes a small base model, and examples whose lengths have a long tail."""

from collections.abc import Iterator
import json
from pathlib import Path
import random
from typing import Any

from bench.language.settings import LanguageSettings
from tests.trainer.bases import tiny_base

SIZES: dict[str, Any] = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 344}
VOCABULARY = 2048
VALIDATION = 8
"""Examples of the validation split, which both evaluate at the end alone, or not at all."""
_WORDS = 3000
_SYLLABLES = [first + second for first in "bdfgklmnprstvz" for second in "aeiou"]


def write(settings: LanguageSettings, *, count: int) -> None:
    """Writes the base and so many examples below the folder of the settings."""
    chance = random.Random(settings.seed)
    words: list[str] = ["".join(chance.choices(_SYLLABLES, k=chance.randint(1, 4))) for _ in range(_WORDS)]
    texts = [_text(chance, words) for _ in range(count + VALIDATION)]
    tiny_base(settings.base, texts=texts[:200], vocabulary=VOCABULARY, positions=settings.max_length, **SIZES)
    settings.examples.mkdir()
    for name, part in (("train", texts[VALIDATION:]), ("val", texts[:VALIDATION])):
        lines = [json.dumps(_example(text, settings)) + "\n" for text in part]
        Path(settings.examples, f"{name}.jsonl").write_text("".join(lines))


def _text(chance: random.Random, words: list[str]) -> str:
    """Returns a text of common and rare words; each is followed by few others, so that there is something to learn."""
    length = min(round(chance.lognormvariate(3.5, 0.8)) + 4, 200)
    return " ".join(_walk(chance, words, length)) + "."


def _walk(chance: random.Random, words: list[str], length: int) -> Iterator[str]:
    at = min(int(chance.paretovariate(0.7)), len(words)) - 1
    for _ in range(length):
        yield words[at]
        at = (at * 7 + chance.randrange(4)) % len(words)


def _example(text: str, settings: LanguageSettings) -> dict[str, str]:
    if settings.form == "text":
        return {"text": text}
    words = text.split(" ")
    middle = len(words) // 3
    return {"prompt": " ".join(words[:middle]), "completion": " " + " ".join(words[middle:])}
