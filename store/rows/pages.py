"""Pages of rows that are bounded in bytes, too."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

PAGE_BYTES = 1 << 23
"""The most bytes of one page's rows, unless it has one row only."""


@dataclass(frozen=True)
class RowPage(Generic[T]):
    rows: list[T]
    has_more: bool
    """Whether there are rows behind these."""


def take(rows: Iterable[T], *, limit: int, size: Callable[[T], int]) -> RowPage[T]:
    """Returns the first rows, up to `limit` of them and up to `PAGE_BYTES`. Reads one row more. `size`: of a row."""
    taken: list[T] = []
    total = 0
    for row in rows:
        total += size(row)
        if len(taken) == limit or (taken and total > PAGE_BYTES):
            return RowPage(taken, has_more=True)
        taken.append(row)
    return RowPage(taken, has_more=False)
