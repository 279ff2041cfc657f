"""Text that every database stores, and the names of metrics."""

import re
from typing import Any

METRIC_KEY = r"^[^\x00-\x1f\x7f]+$"
"""The pattern of a metric's name, which has 1 to 200 characters: no control characters."""

_DEEPEST = 32
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """Returns `text` with U+FFFD for each NUL and lone surrogate, which not every database stores."""
    return _UNSTORABLE.sub("\ufffd", text)


def unstorable(value: Any) -> tuple[str, str] | None:
    """Finds the first place in `value` (as JSON has it) that no database stores.

    Returns its path and what is wrong with it; None if everything can be stored.
    """
    return _unstorable(value, ())


def _unstorable(value: Any, path: tuple[str, ...]) -> tuple[str, str] | None:
    if len(path) > _DEEPEST:
        return ".".join(path), f"nested more than {_DEEPEST} levels deep"
    if isinstance(value, str):
        return (".".join(path), "text holds a NUL or a lone surrogate") if _UNSTORABLE.search(value) else None
    parts: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        for key, item in value.items():
            name = storable(str(key))[:200]
            parts += [(name, key), (name, item)]
    elif isinstance(value, list):
        parts = [(str(index), item) for index, item in enumerate(value)]
    return next((wrong for name, item in parts if (wrong := _unstorable(item, (*path, name)))), None)
