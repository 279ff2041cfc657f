"""The order of a job's checkpoints, and which of them it goes on from. Nothing else decides either.

The order is by attempt, and then by the time of saving. Of two that were saved at the same time, the one that was
stored later is newer. A job goes on from the newest whole one; where its program has published some, from the newest
of those. `store.output.checkpoint_order` says the same in SQL.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

ORDER = ("attempt", "saved_at", "id")
"""The columns that order checkpoints, oldest first."""
Place = tuple[int, int, str]


class Ordered(Protocol):
    """A checkpoint that is listed."""

    @property
    def attempt(self) -> int: ...
    @property
    def saved_at(self) -> int: ...
    @property
    def id(self) -> str: ...


class Judged(Ordered, Protocol):
    @property
    def damaged(self) -> bool: ...
    @property
    def source(self) -> str | None: ...


J = TypeVar("J", bound=Judged)


def place(checkpoint: Ordered) -> Place:
    """Returns what sorts checkpoints, oldest first: the values of `ORDER`."""
    return checkpoint.attempt, checkpoint.saved_at, checkpoint.id


def resumable(newest_first: Iterable[J]) -> Sequence[J]:
    """Returns those of a job's checkpoints, given newest first, that it may go on from, the one that it does first."""
    whole = [item for item in newest_first if not item.damaged]
    return sorted(whole, key=lambda item: item.source is not None)
