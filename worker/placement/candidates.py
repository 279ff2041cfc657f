"""The order in which one pass considers the waiting jobs: the first job of each group, and then its successors."""

from collections.abc import Callable, Collection, Iterable
from heapq import heapify, heappop, heappush

from store.rows.waiting import Waiting

NextInGroup = Callable[[Waiting], Waiting | None]
"""Returns the next job of a job's group."""

_Entry = tuple[int, str, Waiting, bool]


class Candidates:
    """Yields the highest priority first, then the oldest job.

    `heads` are the first jobs of their groups. `preemptors` are jobs for which others were preempted: they are
    considered wherever they stand in their groups.
    """

    def __init__(self, heads: Iterable[Waiting], preemptors: Collection[Waiting], next_in_group: NextInGroup) -> None:
        self._next_in_group = next_in_group
        self._preemptors = {job.id for job in preemptors}
        self._entries = [_entry(job, is_preemptor=True) for job in preemptors]
        heapify(self._entries)
        self._last_was_preemptor = False
        for head in heads:
            self._push(head)

    def pop(self) -> Waiting | None:
        """Returns the job to consider next, or None at the end."""
        if not self._entries:
            return None
        *_, job, self._last_was_preemptor = heappop(self._entries)
        return job

    def push_successor(self, job: Waiting) -> None:
        """Adds the next job of the group of `job`, which was popped last."""
        if not self._last_was_preemptor:
            self._push(self._next_in_group(job))

    def _push(self, job: Waiting | None) -> None:
        while job is not None and job.id in self._preemptors:
            job = self._next_in_group(job)
        if job is not None:
            heappush(self._entries, _entry(job, is_preemptor=False))


def _entry(job: Waiting, *, is_preemptor: bool) -> _Entry:
    return -job.priority, job.id, job, is_preemptor
