"""Divides the points of an answer among its series."""

from collections.abc import Sequence

MAX_POINTS = 100_000
"""The most points of one answer."""


def share(counts: Sequence[int], *, total: int | None = None) -> int:
    """Returns the most points that each series may have, at least 2, so that all together have at most `total`.

    Without `total`, it is `MAX_POINTS`.
    """
    total = left = MAX_POINTS if total is None else total
    for index, count in enumerate(sorted(counts)):
        most = left // (len(counts) - index)
        if count > most:
            return max(most, 2)
        left -= count
    return total
