"""Changes of lists that no `jobs`, `queue` or `workers` event has reported yet."""

from collections.abc import Iterable
from dataclasses import dataclass

from api.streams.subscription import ListedRow, Subscription
from api.streams.throttle import Throttle
from torchyard.contract.team.roles import Role
from torchyard.contract.telemetry.views import StreamTopic

_TELL_S = 1.0
"""Least seconds between two events about the same list."""
_UNANNOUNCED_S = 5.0
"""Seconds between two such events where Redis announces no changes."""


@dataclass(frozen=True)
class _Moved:
    """A job that was added to lists, moved in them or deleted. `row`: the last one known, None if none is."""

    row: ListedRow | None
    deleted: bool


class ListChanges:
    """What to tell of lists."""

    def __init__(self) -> None:
        self._throttle = Throttle(_TELL_S)
        self._topics = set[StreamTopic]()
        self._jobs: dict[str, _Moved] = {}
        self._unnamed = False

    def note_topic(self, topic: StreamTopic) -> None:
        self._topics.add(topic)

    def note_job(self, job_id: str, *, row: ListedRow | None, deleted: bool) -> None:
        """Notes a job that was added to lists, moved in them or deleted. `row`: the last one known."""
        self._jobs[job_id] = _Moved(row, deleted)

    def note_unnamed(self) -> None:
        """Notes that some jobs moved in lists, nobody knows which."""
        self._unnamed = True

    def note_all(self) -> None:
        """Notes that every list may have changed."""
        self._topics |= {"queue", "workers"}
        self._unnamed = True

    def are_old(self, now: float) -> bool:
        """Returns whether lists were reported so long ago that they may have changed, if no change is announced."""
        return now >= self._throttle.done_at + _UNANNOUNCED_S

    @property
    def due_at(self) -> float:
        """The time at which to tell next."""
        return self._throttle.next_at if self._has_any else float("inf")

    def tell(self, subscriptions: Iterable[Subscription], *, now: float) -> None:
        """Tells each stream what it asked for and its caller may know, if it is time."""
        if not self._has_any or not self._throttle.begin(now):
            return
        for each in subscriptions:
            each.give_hints(self._topics)
            if "jobs" in each.topics:
                self._tell_jobs(each)
        self.clear()

    def clear(self) -> None:
        self._topics.clear()
        self._jobs.clear()
        self._unnamed = False

    @property
    def _has_any(self) -> bool:
        return bool(self._topics or self._jobs or self._unnamed)

    def _tell_jobs(self, to: Subscription) -> None:
        if self._unnamed:
            to.give_listed(None, deleted=False)
        for job_id, moved in self._jobs.items():
            may_know = moved.row is not None and moved.row.shown_to(to.caller) is not None
            if may_know or to.caller.role is Role.OPERATOR:
                to.give_listed(job_id, deleted=moved.deleted)
            elif moved.row is None:
                to.give_listed(None, deleted=False)  # nobody remembers the owner of the deleted job
