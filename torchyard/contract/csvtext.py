"""CSV that a spreadsheet can open."""

from collections.abc import Iterable, Sequence
import csv
import io

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # the last are full-width


def csv_of(rows: Iterable[Sequence[object]]) -> str:
    """Returns rows as CSV. A text that a spreadsheet would run as a formula gets a `'` before it."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerows([f"'{cell}" if _is_formula(cell) else cell for cell in row] for row in rows)
    return text.getvalue()


def _is_formula(cell: object) -> bool:
    return isinstance(cell, str) and cell.startswith(_FORMULA)
