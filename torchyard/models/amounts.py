"""Holds that a checkpoint takes no more memory than its file has bytes, whatever it says of itself."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from torchyard.contract.attempts.rundir import INDEX_FILE
from torchyard.contract.errors import DataError

MOST_VALUES = 1_000_000
"""The most values in a state beside its weights. A model of 100,000 classes has about half as many."""
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
    values: int
    characters: int
    height: int


_HOLDERS = (Mapping, list, tuple, set, frozenset)
_ENDLESS = _Amount(0, 0, DEEPEST + 1)


def _amount(value: Any, known: dict[int, _Amount], depth: int = 0) -> _Amount:
    """Returns what a list or a mapping holds. `known`: what was counted before, by its identity."""
    if depth > DEEPEST:
        return _ENDLESS
    if id(value) not in known:
        values, characters, height = 1, 0, 0
        for each in _inside(value):
            if isinstance(each, str):
                values, characters = values + 1, characters + len(each)
            elif isinstance(each, _HOLDERS):
                inner = _amount(each, known, depth + 1)
                values, characters = values + inner.values, characters + inner.characters
                height = max(height, inner.height)
            else:
                values += 1
        known[id(value)] = _Amount(values, characters, height + 1)
    return known[id(value)]


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        found = cast("Mapping[Any, Any]", value)
        return chain(found.keys(), found.values())
    return cast("Iterable[Any]", value)
