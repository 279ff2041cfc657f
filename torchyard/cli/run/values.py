"""What the texts of settings mean: those of variables of the environment, which are all texts, and sizes."""

import re
import shlex
from typing import Any, TypeAlias

from torchyard.contract.wire import units
from torchyard.contract.wire.units import parse_duration

Value: TypeAlias = Any
"""A value of a setting: a text, a number, a truth, or a table of texts."""


def parse_size(value: Value) -> int:
    """Returns the bytes of a size such as `200MiB`, and a number as it is; never 0. Raises ValueError."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    found = units.parse_size(value) if isinstance(value, str) else 0
    if not found:
        raise ValueError("must be a size: 500KiB, 200MiB, 200MB, 1GiB, or a number of bytes")
    return found


def duration(value: str) -> str:
    """Returns a duration above zero, as it is written. Raises ValueError."""
    if not parse_duration(value):
        raise ValueError("not above zero")
    return value


def number(text: str) -> Value:
    """Returns the whole number that the text is, or the text if it is none."""
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,9}", text) else text


def fraction(text: str) -> Value:
    """Returns the number that the text is, or the text if it is none."""
    return float(text) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) else text


def truth(text: str) -> Value:
    """Returns the truth that the text is, or the text if it is none."""
    return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)


def words(text: str) -> Value:
    """Returns the words of a text such as `'out/*.pt' 'more/*.pt'`, or the text if it is none."""
    try:
        return shlex.split(text)
    except ValueError:
        return text


def pairs(text: str) -> Value:
    """Returns the table that `A=1 B='two words'` writes, or the text if it is none."""
    try:
        found = [part.partition("=") for part in shlex.split(text)]
    except ValueError:
        return text
    return {name: value for name, _, value in found} if all(mark for _, mark, _ in found) else text
