"""Rows of jobs that may have changed and are to be read again."""

from collections import OrderedDict
from collections.abc import Mapping

from api.streams.subscription import MOST_PENDING, ListedRow
from api.streams.throttle import Throttle
from api.streams.watched import WatchedJobs

_READ_S = 0.5
"""Least seconds between two reads of rows."""
_MOST_ROWS = 100
"""Most rows of one read."""


class ChangedRows:
    """The jobs whose rows are to be read, each with whether its position in lists changed, and the rows read last."""

    def __init__(self, watched: WatchedJobs) -> None:
        self._watched = watched
        self._pending: dict[str, bool] = {}
        self._throttle = Throttle(_READ_S)
        self._seen: OrderedDict[str, ListedRow] = OrderedDict()

    def note(self, job_id: str, *, moved: bool = False) -> bool:
        """Notes a job. `moved`: it was added to lists, moved in them or deleted.

        Returns False if there are too many; watched jobs are always noted.
        """
        if len(self._pending) >= MOST_PENDING and job_id not in self._watched:
            return False
        self._pending[job_id] = moved or self._pending.get(job_id, False)
        return True

    def note_again(self, taken: Mapping[str, bool]) -> None:
        """Notes jobs that could not be read."""
        for job_id, moved in taken.items():
            self._pending[job_id] = moved or self._pending.get(job_id, False)

    @property
    def due_at(self) -> float:
        """The time at which rows may be read next."""
        return self._throttle.next_at if self._pending else float("inf")

    def take_due(self, now: float) -> dict[str, bool]:
        """Returns the jobs whose rows to read now, watched jobs first. They are no longer noted."""
        if not self._pending or not self._throttle.begin(now):
            return {}
        chosen = sorted(self._pending, key=lambda job_id: job_id not in self._watched)[:_MOST_ROWS]
        return {job_id: self._pending.pop(job_id) for job_id in chosen}

    def remember(self, row: ListedRow) -> None:
        """Keeps the row: who may hear that a job was deleted is known from its last row alone."""
        self._seen[row.job.id] = row
        self._seen.move_to_end(row.job.id)
        if len(self._seen) > MOST_PENDING:
            self._seen.popitem(last=False)

    def last(self, job_id: str) -> ListedRow | None:
        """Returns the row that was read last, None if it is not remembered."""
        return self._seen.get(job_id)

    def clear(self) -> None:
        """Forgets which rows are to be read."""
        self._pending.clear()
