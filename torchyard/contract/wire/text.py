"""Text that every database stores, the names of metrics, and CSV."""

from collections.abc import Iterable, Iterator, Sequence
import re
from typing import Any

METRIC_KEY = r"^[^\x00-\x1f\x7f]+$"
"""The pattern of a metric's name, which has 1 to 200 characters: no control characters."""

METRIC_KEY_LENGTH = 200
"""Characters of a metric's name, at most."""

LONGEST_URL = 4008
"""Characters of a `file:///…`, at most. A pattern that counts them would take 8 MiB, and 20 ms at each start."""

MOST_SHOWN_TEXT = 1000
"""Characters of a message in a row of a list."""
_TRACEBACK = "Traceback (most recent call last):"
_NO_SUBTYPE = "Does not validate against any of the Union subtypes"
"""Begins an error of jsonargparse, which Lightning's command line uses. Its reason is some lines below."""
_ONLY_A_TYPE = re.compile(r"- (?:Expected an? |Not of type |Value .{0,80} is not )")
"""Of the types that did not fit, what each says that was not meant."""
_MOST_REASONS = 40
_LONGEST_REASON = 500
_DEEPEST = 32
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # the last are full-width
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def storable(text: str) -> str:
    """Returns `text` with U+FFFD for each NUL and lone surrogate, which not every database stores."""
    return _UNSTORABLE.sub("\ufffd", text)


def printable(text: str) -> str:
    """Returns `text` with U+FFFD for what is no plain character: controls, changes of direction, lone surrogates."""
    return _UNPRINTABLE.sub("\ufffd", text)


def shown_text(message: str) -> str:
    """Returns a message as a row of a list has it."""
    return message if len(message) <= MOST_SHOWN_TEXT else f"{message[: MOST_SHOWN_TEXT - 1]}…"


def headline(message: str) -> str:
    """Returns the one line of an error's message that says most: the first, or, of a quoted traceback, the last."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if not lines:
        return ""
    if any(line.endswith(_TRACEBACK) for line in lines[1:]):
        return lines[-1]
    return subtype_reason(lines) or lines[0]


def subtype_reason(lines: Sequence[str]) -> str | None:
    """Returns the sentence that says why a value fits no type, of lines that begin with a message of jsonargparse.

    None if they begin otherwise, or say no more than which types there are.
    """
    if not any(_NO_SUBTYPE in line for line in lines[:2]):
        return None
    below = [line.strip() for line in lines[: 1 + _MOST_REASONS]]
    begin = next((at for at, line in enumerate(below) if line == "Errors:"), len(below))
    first = next((at for at in range(begin + 1, len(below)) if _is_reason(below[at])), None)
    if first is None:
        return None
    behind = range(first + 1, len(below))
    end = next((at for at in behind if below[at].startswith(("- ", "Given value"))), len(below))
    return " ".join(below[first:end]).removeprefix("- ")[:_LONGEST_REASON]


def _is_reason(line: str) -> bool:
    return line.startswith("- ") and _ONLY_A_TYPE.match(line) is None


def unstorable(value: Any, *, most_values: int | None = None) -> tuple[str, str] | None:
    """Finds the first place in `value` (as JSON has it) that no database stores, or that has too many keys and values.

    Returns its path and what is wrong with it; None if everything can be stored.
    """
    if _is_storable(value, most_values):
        return None
    waiting: list[tuple[tuple[str, ...], Any]] = [((), value)]
    seen = 0
    while waiting:
        path, item = waiting.pop()
        seen += 1
        if isinstance(item, str) and _UNSTORABLE.search(item):
            return ".".join(path), "text holds a NUL or a lone surrogate"
        size = 2 * len(item) if isinstance(item, dict) else len(item) if isinstance(item, list) else 0
        if size and len(path) == _DEEPEST:
            return ".".join(path), f"nested more than {_DEEPEST} levels deep"
        if most_values is not None and seen + len(waiting) + size > most_values:
            return ".".join(path), f"there are more than {most_values} keys and values"
        if isinstance(item, (dict, list)):
            waiting += reversed(list(_parts(item, path)))
    return None


def csv_of(rows: Iterable[Sequence[object]]) -> str:
    """Returns rows as CSV that a spreadsheet can open. A text that it would run as a formula gets a `'` before it."""
    import csv  # ranks import this module, and write no CSV
    import io

    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerows([f"'{cell}" if _is_formula(cell) else cell for cell in row] for row in rows)
    return text.getvalue()


def _is_formula(cell: object) -> bool:
    return isinstance(cell, str) and cell.startswith(_FORMULA)


def _is_storable(value: Any, most_values: int | None) -> bool:
    """Returns whether nothing is wrong with `value`, a level at a time: that takes a fifth of finding the place."""
    level, texts, seen = [value], list[str](), 1
    for _ in range(_DEEPEST):
        inner: list[Any] = []
        for item in level:
            if isinstance(item, str):
                texts.append(item)
            elif isinstance(item, dict):
                texts += map(str, item)
                inner += item.values()
                seen += 2 * len(item)
            elif isinstance(item, list):
                inner += item
                seen += len(item)
        if most_values is not None and seen > most_values:
            return False
        if not inner:
            return _UNSTORABLE.search("".join(texts)) is None
        level = inner
    return False


def _parts(value: dict[Any, Any] | list[Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, list):
        yield from (((*path, str(index)), item) for index, item in enumerate(value))
        return
    for key, item in value.items():
        inner = (*path, storable(str(key))[:200])
        yield inner, key
        yield inner, item
