"""What a setting of `run` may be: checks as strict as those of a job spec, without its models, which load slowly.

Each returns the value, and raises ValueError for one that is not allowed.
"""

from collections.abc import Callable
import re
from typing import TypeAlias

from torchyard.cli.run.values import Value

Check: TypeAlias = Callable[[Value], Value]


def whole(least: int, most: int) -> Check:
    """Checks a whole number."""
    return lambda value: _require(value, type(value) is int and least <= value <= most)


def above_zero(most: float) -> Check:
    """Checks a number, which becomes a float."""
    return lambda value: float(_require(value, type(value) in (int, float) and 0 < value <= most))


def truth(value: Value) -> Value:
    return _require(value, isinstance(value, bool))


def one_of(*words: str) -> Check:
    return lambda value: _require(value, isinstance(value, str) and value in words)


def text(least: int, most: int | None = None) -> Check:
    """Checks a text of so many characters."""

    def check(value: Value) -> Value:
        _require(value, isinstance(value, str) and least <= len(value) and (most is None or len(value) <= most))
        value.encode()  # raises for a lone surrogate, which JSON cannot have
        return value

    return check


def of_form(pattern: str) -> Check:
    """Checks a text, all of which matches the pattern. It is compiled when a value is checked, as few ever are."""

    def check(value: Value) -> Value:
        return _require(value, isinstance(value, str) and re.fullmatch(pattern, value) is not None)

    return both(text(0), check)


def items(item: Check, *, most: int, least: int = 0) -> Check:
    """Checks a list, and each of its items."""

    def check(value: Value) -> Value:
        return [item(each) for each in _require(value, isinstance(value, list) and least <= len(value) <= most)]

    return check


def table(key: Check, item: Check, *, most: int | None = None) -> Check:
    """Checks a table, its keys and its values."""

    def check(value: Value) -> Value:
        _require(value, isinstance(value, dict) and (most is None or len(value) <= most))
        return {key(name): item(each) for name, each in value.items()}

    return check


def labels(value: Value) -> Value:
    from torchyard.contract.spec.labels import wrong_labels

    return _require(value, wrong_labels(value) is None)


def both(first: Check, second: Check) -> Check:
    """Checks with the one, and what that returns with the other."""
    return lambda value: second(first(value))


def _require(value: Value, allowed: bool) -> Value:
    if not allowed:
        raise ValueError("not allowed")
    return value
