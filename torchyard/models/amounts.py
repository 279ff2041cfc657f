"""Holds that a checkpoint takes no more memory than its file has bytes, whatever it says of itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from torchyard.contract.errors import DataError
from torchyard.contract.rundir import INDEX_FILE

MOST_VALUES = 1_000_000
"""Values in all that a state says beside its weights. A model of 100,000 classes has half as many."""
MOST_CHARACTERS = 256 << 20
"""Of all texts in it. A tokenizer may have a quarter of that."""
DEEPEST = 100
"""Lists and dicts inside each other."""
MOST_NAMES = 2
"""Names that the bytes of a weight may have: layers that share a weight save it under each name."""


def bytes_of(path: Path) -> int:
    """Returns the bytes of a checkpoint: of its file, or of all files in its folder. Links do not count."""
    folder = path.parent if path.name == INDEX_FILE else path
    files = folder.iterdir() if folder.is_dir() else [path.resolve()]
    return sum(file.stat().st_size for file in files if file.is_file() and not file.is_symlink())


def check_weights(weights: Mapping[str, Tensor], *, size: int, what: str) -> None:
    """Raises DataError if the tensors are larger than a file of `size` bytes: their rows may all be the same bytes."""
    needed = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
    if needed > MOST_NAMES * size:
        raise DataError(f"{what}: its weights say that they are {needed} bytes, and there are {size}")


def check_metadata(metadata: Mapping[str, Any], *, what: str) -> None:
    """Raises DataError if a state says too much beside its weights.

    A value counts wherever it stands: a few lists that hold each other many times are a large text when they are shown.
    """
    found = _amount(dict(metadata), {})
    if found.values > MOST_VALUES or found.characters > MOST_CHARACTERS or found.height > DEEPEST:
        raise DataError(
            f"{what}: what it says beside its weights is more than {MOST_VALUES} values, {MOST_CHARACTERS} "
            f"characters, or {DEEPEST} lists in each other"
        )


@dataclass(frozen=True)
class _Amount:
    values: int = 1
    characters: int = 0
    height: int = 0


_ENDLESS = _Amount(height=DEEPEST + 1)


def _amount(value: Any, known: dict[int, _Amount], depth: int = 0) -> _Amount:
    """Returns what a value holds. `known`: what was counted before, by its identity."""
    if isinstance(value, str):
        return _Amount(characters=len(value))
    inside = _inside(value)
    if not inside:
        return _Amount()
    if depth > DEEPEST:
        return _ENDLESS
    if id(value) not in known:
        counted = [_amount(each, known, depth + 1) for each in inside]
        known[id(value)] = _Amount(
            values=1 + sum(each.values for each in counted),
            characters=sum(each.characters for each in counted),
            height=1 + max(each.height for each in counted),
        )
    return known[id(value)]


def _inside(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [*cast("Mapping[Any, Any]", value).keys(), *cast("Mapping[Any, Any]", value).values()]
    return [*cast("list[Any]", value)] if isinstance(value, list | tuple | set | frozenset) else []
