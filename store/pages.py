"""Parts of long lists, some of them bounded in bytes, too."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

PAGE_BYTES = 1 << 23
"""The most bytes of one page's rows, unless it has one row only."""


@dataclass(frozen=True)
class FactPage(Generic[T]):
    """Some items of a list, in its order."""

    items: Sequence[T]
    has_more: bool
    """Whether there are items after these."""


def first(items: Sequence[T], limit: int) -> FactPage[T]:
    """Returns the first `limit` of the items. The caller reads one item more, which shows whether others follow."""
    return FactPage(items[:limit], has_more=len(items) > limit)


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
