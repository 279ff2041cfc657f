"""What a worker says to Redis to keep the line there equal to the rows. Every function raises QueueUnavailable."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
import json

from redis import Redis

from store.queue.line import scripts
from store.queue.line.from_redis import written
from store.queue.line_facts import Left, LineEntry
from store.redis import names as redis_names
from store.redis.client import translated

_FORMAT = "1"
"""Of the keys and of the entries: a Redis that was filled by another one is filled anew."""
_STAMP_MS = 60_000
"""If no worker compares the line with the rows for so long, SQL answers until one does."""
_ALONE_MS = 5_000
"""If the worker that rebuilds says nothing for so long, another one may begin."""

Change = tuple[str, str, str]
"""A job, its new entry ('' without one), and when that applies, as `store.queue.line.scripts.CHANGE` has it."""


@dataclass(frozen=True)
class Stamp:
    """Says that the line in Redis may be read."""

    run_id: str
    """Of the Redis that was filled: a restarted one may have lost some entries."""
    swept_at: int
    """Since when differences are possible, in microseconds by the database's clock."""

    def __str__(self) -> str:
        return f"{_FORMAT}|{self.run_id}|{self.swept_at}"


class Upkeep:
    """Of one service's keys in Redis."""

    def __init__(self, redis: Redis, *, service: Callable[[], str]) -> None:
        self._redis = redis
        self._service = service

    def run_id(self) -> str:
        """Returns what identifies this run of the server."""
        with translated():
            return str(self._redis.info("server")["run_id"])

    def stamp(self) -> Stamp | None:
        """Returns the stamp; None without one of this format, or if sets and entries do not belong together.

        Raises WrongKeys.
        """
        with translated():
            state, sound = scripts.STATE.run(self._redis, self._base)
        kind, _, rest = str(state).partition("|")
        run_id, _, swept_at = rest.partition("|")
        return Stamp(run_id, int(swept_at)) if kind == _FORMAT and swept_at.isdecimal() and sound else None

    def entries(self, job_ids: Sequence[str]) -> list[str]:
        """Returns the entry of each job, '' without one; it begins with '!' if the sets have the job otherwise."""
        with translated():
            answer = scripts.LOOK.run(self._redis, self._base, (json.dumps(job_ids),))
        return json.loads(answer) or []

    def change(self, changes: Sequence[Change]) -> None:
        """Writes entries."""
        if changes:
            with translated("rebuild"):
                scripts.CHANGE.run(self._redis, self._base, (json.dumps(changes),))

    def scan(self, cursor: int, *, count: int) -> tuple[int, list[str]]:
        """Returns about `count` ids that Redis has, and the cursor of the next ones, which is 0 behind the last."""
        with translated():
            following, job_ids = self._redis.hscan(f"{self._base}jobs", cursor, count=count)
        return int(following), [str(job_id) for job_id in job_ids]

    def renew(self, stamp: Stamp) -> None:
        """Lets the line be read for another while, if it may be read now."""
        with translated():
            self._redis.set(f"{self._base}stamp", str(stamp), px=_STAMP_MS, xx=True)

    def begin(self, token: str) -> bool:
        """Removes the line. Returns False, and removes nothing, if another worker rebuilds it."""
        with translated("rebuild"):
            return bool(scripts.BEGIN.run(self._redis, self._base, (token, _ALONE_MS)))

    def go_on(self, token: str) -> bool:
        """Returns whether the worker with this token still rebuilds alone, and may do so for another while."""
        with translated():
            return bool(scripts.GO_ON.run(self._redis, self._base, (token, _ALONE_MS)))

    def finish(self, token: str, stamp: Stamp) -> bool:
        """Sets the stamp: readers use the line. Returns False if another worker rebuilds it, or Redis was wiped."""
        with translated("rebuild"):
            return bool(scripts.FINISH.run(self._redis, self._base, (token, str(stamp), _STAMP_MS)))

    @property
    def _base(self) -> str:
        return redis_names.line(self._service())


def committed_change(job_id: str, entry: LineEntry | Left) -> Change:
    """Returns the change that a commit made.

    It applies unless Redis has heard of a later one, or was compared with the rows long after it.
    """
    if isinstance(entry, LineEntry):
        return job_id, written(entry), f"<{entry.changed}"
    return job_id, "", "" if entry.changed is None else f"<{entry.changed}"


def missing_change(job_id: str, seen: str, entry: LineEntry | None) -> Change | None:
    """Returns the change from what Redis was seen to have to `entry`; None if it has just that.

    It applies only if no commit has changed the entry since.
    """
    wanted = "" if entry is None else written(entry)
    return None if seen == wanted else (job_id, wanted, f"={seen.removeprefix('!')}")
