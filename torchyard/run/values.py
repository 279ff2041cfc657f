"""What a program may record: names and numbers, checked when it says them, with the name in every error."""

from collections.abc import Mapping
import json
import operator
import re
from typing import Any

from torchyard.contract.wire.text import METRIC_KEY_LENGTH

LARGEST_STEP, LARGEST_EPOCH = 2**63 - 1, 2**31 - 1
MOST_METRICS = 1000
"""Metrics of one line or checkpoint."""
_ODD = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
"""What METRIC_KEY excludes, and lone surrogates, which no file holds."""
_SHOWN = 100  # characters of a wrong value


def check_names(values: Mapping[Any, Any]) -> None:
    """Raises TypeError and ValueError for names that metrics cannot have."""
    for name in values:
        if not isinstance(name, str):
            raise TypeError(f"a metric's key is a text, and no {type(name).__name__}: {_shown(name)}")
        if not 1 <= len(name) <= METRIC_KEY_LENGTH:
            raise ValueError(f"a metric's key has 1 to {METRIC_KEY_LENGTH} characters, not {len(name)}: {_shown(name)}")
        if _ODD.search(name):
            raise ValueError(f"a metric's key has no control characters: {_shown(name)}")


def number(name: str, value: Any) -> float:
    """Returns a number, or the one of an array or a tensor. Raises TypeError and ValueError, which name it."""
    try:
        return float(value.item() if getattr(value, "size", 0) == 1 and hasattr(value, "item") else value)
    except (TypeError, ValueError, OverflowError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        shown = f" {_shown(value)}" if isinstance(value, str) else ""
        raise kind(f"{name}: a {type(value).__name__}{shown} is not a number: {error}"[:500]) from None


def whole(name: str, value: Any, *, most: int = LARGEST_STEP) -> int:
    """Returns a whole number from 0 to `most`. Raises TypeError and ValueError, which name it."""
    if type(value) is int and 0 <= value <= most:
        return value
    try:
        found = int(operator.index(value))
    except TypeError:
        shown = f"a {type(value).__name__}, {_shown(value)}"
        raise TypeError(f"{name} must be a whole number; got {shown}") from None
    if not 0 <= found <= most:
        raise ValueError(f"{name} must be from 0 to {most}; got {_shown(found)}")
    return found


def whole_or_none(name: str, value: Any, *, most: int = LARGEST_STEP) -> int | None:
    """Returns what `whole` does, and None for None."""
    return None if value is None else whole(name, value, most=most)


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `values` as JSON reads them back: with lists for tuples. Raises TypeError and ValueError."""
    return json.loads(json.dumps(dict(values)))


def _shown(value: object) -> str:
    """Returns the value as Python writes it, cut."""
    try:
        return f"{value!r:.{_SHOWN}}"
    except Exception:  # noqa: BLE001 the user's own __repr__, or a number of too many digits
        return f"<{type(value).__name__}>"
