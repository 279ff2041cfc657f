"""Prints the tables of sufficient GPUs in docs/reference/recipes.md: `python -m bench.fits`."""

from collections.abc import Iterator
from itertools import product
from typing import Literal

from trainer.fits import Setup, Sizes, needed

MODELS = {
    "0.5B": Sizes(
        hidden=896, layers=24, heads=14, key_heads=2, head_size=64, intermediate=4864, vocabulary=151936, tied=True
    ),
    "1.5B": Sizes(
        hidden=1536, layers=28, heads=12, key_heads=2, head_size=128, intermediate=8960, vocabulary=151936, tied=True
    ),
    "3B": Sizes(
        hidden=2048, layers=36, heads=16, key_heads=2, head_size=128, intermediate=11008, vocabulary=151936, tied=True
    ),
    "8B": Sizes(hidden=4096, layers=32, heads=32, key_heads=8, head_size=128, intermediate=14336, vocabulary=128256),
    "14B": Sizes(hidden=5120, layers=48, heads=40, key_heads=8, head_size=128, intermediate=13824, vocabulary=152064),
    "32B": Sizes(hidden=5120, layers=64, heads=40, key_heads=8, head_size=128, intermediate=27648, vocabulary=152064),
    "70B": Sizes(hidden=8192, layers=80, heads=64, key_heads=8, head_size=128, intermediate=28672, vocabulary=128256),
}
"""The shapes of Qwen2.5, and of Llama 3.1 for 8B and 70B."""
CARDS = (24, 40, 80)
DEVICES = (1, 2, 4, 8)
LENGTHS = (1024, 4096)
SHARE = 0.9
"""Of a card's memory: the rest is for the device's context and the allocator's fragments."""


def tables() -> str:
    """Returns a table for each method: the smallest card that is enough, without and with checkpointed activations."""
    return "\n\n".join("\n".join(_table(method)) for method in ("lora", "full"))


def _table(method: Literal["lora", "full"]) -> Iterator[str]:
    yield f"| `{method}` | `max_length` | " + " | ".join(_devices(count) for count in DEVICES) + " |"
    yield "| --- | --- | " + " | ".join("---" for _ in DEVICES) + " |"
    for (name, model), length in product(MODELS.items(), LENGTHS):
        cells = (_cell(model, method, length, count) for count in DEVICES)
        yield f"| {name} | {length} | " + " | ".join(cells) + " |"


def _devices(count: int) -> str:
    return "1 GPU" if count == 1 else f"`fsdp`, {count} GPUs"


def _cell(model: Sizes, method: Literal["lora", "full"], length: int, devices: int) -> str:
    found = (
        _card(needed(model, Setup(method=method, length=length, devices=devices, recompute=recompute)).total)
        for recompute in (False, True)
    )
    return " / ".join(found)


def _card(size: int) -> str:
    return next((str(card) for card in CARDS if size <= SHARE * card * 2**30), "–")


if __name__ == "__main__":
    print(tables())
