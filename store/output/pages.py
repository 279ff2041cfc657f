"""Pages of rows that are bounded in bytes, too."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from store.output.pages_facts import FactPage

T = TypeVar("T")

PAGE_BYTES = 1 << 23
"""The most bytes of one page's rows, unless it has one row only."""


def take(rows: Iterable[T], *, limit: int, size: Callable[[T], int], most: int = PAGE_BYTES) -> FactPage[T]:
    """Returns the first rows, up to `limit` of them and up to `most` bytes. Reads one row more. `size`: of a row."""
    taken: list[T] = []
    total = 0
    for row in rows:
        total += size(row)
        if len(taken) == limit or (taken and total > most):
            return FactPage(taken, has_more=True)
        taken.append(row)
    return FactPage(taken, has_more=False)
