"""Fits the columns of a table into a terminal."""

from collections.abc import Sequence

GAP = "  "
_LEAST = 14
"""Characters that a column has where all fit: up to these, no cell is truncated. A short id has no more."""
_SHORTEST = 4
"""A column of longer cells is shown with so few where no more is left."""


def fitted(cells: Sequence[Sequence[str]], columns: int) -> list[list[str]]:
    """Returns the header and the rows without empty columns, and without the last ones and ends of cells that do not
    fit. With more columns, no cell is shown shorter.
    """
    found = [*zip(*cells, strict=True)]
    shown = [column for index, column in enumerate(found) if len(cells) == 1 or not index or any(column[1:])]
    widths = _widths([max(map(len, column)) for column in shown], columns)
    cut = [[_cut(cell, width) for cell in column] for column, width in zip(shown, widths, strict=False)]
    return [list(row) for row in zip(*cut, strict=True)]


def _widths(wanted: Sequence[int], columns: int) -> list[int]:
    """Returns the widths of the first columns: of each in turn the least, and if all have it, in turn one more."""
    widths: list[int] = []
    for most in wanted:
        left = columns - sum(widths) - len(GAP) * len(widths)
        if widths and left < (most if most <= _LEAST else _SHORTEST):
            return widths
        widths.append(max(1, min(most, _LEAST, left)))
    left = columns - sum(widths) - len(GAP) * (len(widths) - 1)
    while left > 0 and any(width < most for width, most in zip(widths, wanted, strict=True)):
        for index, most in enumerate(wanted):
            if widths[index] < most and left > 0:
                widths[index] += 1
                left -= 1
    return widths


def _cut(cell: str, width: int) -> str:
    return cell if len(cell) <= width else f"{cell[: width - 1]}…"
