"""Formats the model card of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchyard.cli import output
from torchyard.host import terminal

if TYPE_CHECKING:
    from pydantic import JsonValue

_KNOWN_KEYS = (
    *("parameters", "trainable_parameters", "flops_per_sample", "inference_seconds"),
    *("training_samples", "global_batch"),
    *("per_device_batch_size", "gradient_accumulation_steps", "world_size", "device", "precision"),
    *("samples_per_second", "peak_memory_bytes", "data_hash", "split_hash", "versions"),
)
"""The keys that recipes write, in the order in which they are shown. Other keys follow."""

_HASH_SHOWN = 12
_MOST_SHOWN = 12


def card_lines(card: dict[str, JsonValue]) -> list[str]:
    """Returns the card as the lines of a table. Nested values are only counted; `--json` shows them."""
    keys = [key for key in _KNOWN_KEYS if key in card] + sorted(card.keys() - set(_KNOWN_KEYS))
    rows = [(_label(key), _shown(key, card[key])) for key in keys]
    return output.table(("MODEL CARD", ""), [row for row in rows if row[1]])


def _label(key: str) -> str:
    return key.removesuffix("_bytes").replace("_", " ").replace("flops", "FLOPs")


def _shown(key: str, value: JsonValue) -> str:
    if isinstance(value, dict):
        return _joined([f"{name} {_shown(name, item)}" for name, item in value.items() if item is not None], value)
    if isinstance(value, list):
        return _joined([_shown(key, item) for item in value], value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _number(key, value)
    if value is None:
        return ""
    return value[:_HASH_SHOWN] if key.endswith(("_hash", "sha256")) else value


def _joined(parts: list[str], whole: dict[str, JsonValue] | list[JsonValue]) -> str:
    nested = any(isinstance(item, (dict, list)) for item in (whole.values() if isinstance(whole, dict) else whole))
    return f"{len(whole)} entries" if nested or len(parts) > _MOST_SHOWN else ", ".join(parts)


def _number(key: str, value: float) -> str:
    if abs(value) >= 1e18:
        return str(value)
    if key.endswith("_bytes"):
        return terminal.size(round(value))
    if key.endswith("parameters"):
        return terminal.scaled(value)
    if key.startswith("flops"):
        scaled = terminal.scaled(value)
        return f"{scaled}FLOPs" if " " in scaled else f"{scaled} FLOPs"
    return terminal.number(value)
