"""What one stream of several jobs asked for, and the events that wait to be sent in it."""

from collections.abc import Collection
from dataclasses import dataclass, field

from api.streams.live import Watch
from store.jobs.facts import ListedJob
from store.team.callers import Caller, may_list, may_read
from torchyard.contract.telemetry.views import StreamTopic

MOST_PENDING = 1000
"""Most jobs in each queue of changes. Beyond it, a single `jobs` event without an id replaces them."""


@dataclass(frozen=True)
class ListedRow:
    """A job's row in a list, encoded: `whole` for who may read the job, `withheld` for who may only list it.

    `starred`: in place of `whole`, for who has starred it. None if nobody has.
    """

    job: ListedJob
    whole: bytes
    starred: bytes | None
    withheld: bytes

    def shown_to(self, caller: Caller) -> bytes | None:
        """Returns what the caller sees of it; None if they may not list it."""
        if may_read(caller, self.job):
            return self.starred if caller.name in self.job.starred_by else self.whole
        return self.withheld if may_list(caller, self.job) else None


@dataclass(eq=False)
class Subscription:
    """What one stream asked for, and what it has not sent yet."""

    watch: Watch
    caller: Caller
    topics: frozenset[StreamTopic]
    jobs: set[str]
    """The jobs whose items it sends."""
    rows: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Rows to send in `job` events, by job id."""
    listed: dict[str | None, bool] = field(default_factory=dict[str | None, bool])
    """Jobs to name in `jobs` events, each with whether it was deleted. None: an event that names no job."""
    hints: set[StreamTopic] = field(default_factory=set[StreamTopic])
    """The `queue` and `workers` events to send."""
    _last: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def give_row(self, row: ListedRow) -> None:
        """Adds a `job` event, if the stream asked for the job and has not sent the same row last."""
        job_id, shown = row.job.id, row.shown_to(self.caller)
        if shown is None or not (job_id in self.jobs or "jobs" in self.topics):
            return
        if job_id in self.jobs:
            if self._last.get(job_id) == shown:
                return
            self._last[job_id] = shown
        if len(self.rows) < MOST_PENDING or job_id in self.rows:
            self.rows[job_id] = shown
        else:
            self.give_listed(None, deleted=False)
        self.watch.wake()

    def give_hints(self, topics: Collection[StreamTopic]) -> None:
        """Adds a `queue` or `workers` event for each topic that the stream asked for."""
        asked = self.topics.intersection(topics)
        if asked:
            self.hints |= asked
            self.watch.wake()

    def give_deleted(self, job_id: str) -> None:
        """Adds a `jobs` event for a watched job that was deleted, and ends its items."""
        self.jobs.discard(job_id)
        self.give_listed(job_id, deleted=True)

    def give_listed(self, job_id: str | None, *, deleted: bool) -> None:
        """Adds a `jobs` event: the job was added to lists, moved in them or deleted. None: some jobs were."""
        if len(self.listed) >= MOST_PENDING:
            self.listed.clear()
            job_id, deleted = None, False
        self.listed[job_id] = deleted
        self.watch.wake()
