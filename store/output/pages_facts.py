"""Parts of long lists."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class FactPage(Generic[T]):
    """Some items of a list, in its order."""

    items: Sequence[T]
    has_more: bool
    """Whether there are items behind these."""


def first(items: Sequence[T], limit: int) -> FactPage[T]:
    """Returns the first `limit` of the items. The caller reads one item more, which shows whether others follow."""
    return FactPage(items[:limit], has_more=len(items) > limit)
