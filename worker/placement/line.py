"""The order in which one pass considers jobs that wait: of each group the first, and then who takes its place."""

from collections.abc import Callable, Collection, Iterable
from heapq import heapify, heappop, heappush

from store.rows.waiting import Waiting

Following = Callable[[Waiting], Waiting | None]
"""The next job of a job's group."""

_Entry = tuple[int, str, Waiting, bool]


class Line:
    """The highest priority first, then the oldest.

    `heads` are the first of their groups. `favoured`, for which room is being made already, are considered wherever
    they stand in theirs.
    """

    def __init__(self, heads: Iterable[Waiting], favoured: Collection[Waiting], following: Following) -> None:
        self._following = following
        self._favoured = {job.id for job in favoured}
        self._entries = [_entry(job, alone=True) for job in favoured]
        heapify(self._entries)
        self._alone = False
        for head in heads:
            self._put(head)

    def take(self) -> Waiting | None:
        """Who is considered next; None at the end."""
        if not self._entries:
            return None
        *_, job, self._alone = heappop(self._entries)
        return job

    def move_up(self, job: Waiting) -> None:
        """Has the next of the group of `job`, which was taken last, considered as well."""
        if not self._alone:
            self._put(self._following(job))

    def _put(self, job: Waiting | None) -> None:
        while job is not None and job.id in self._favoured:
            job = self._following(job)
        if job is not None:
            heappush(self._entries, _entry(job, alone=False))


def _entry(job: Waiting, *, alone: bool) -> _Entry:
    return -job.priority, job.id, job, alone
