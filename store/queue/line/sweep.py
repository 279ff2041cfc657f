"""Finds where the line in Redis differs from the rows, and makes it equal. It costs by what has changed, not by jobs.

A process may be killed between a commit and its announcement; Redis may be wiped, restarted, or restored from an hour
ago; the database, too.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta
import logging
import secrets
from typing import Any

from sqlalchemy import Row, bindparam, literal, select, tuple_, update

from store.db.database import Database, in_us, now_us
from store.queue.line.conditions import in_line
from store.queue.line.entries import COLUMNS, entry_of
from store.queue.line.scripts import LATE_US
from store.queue.line.upkeep import Stamp, Upkeep, committed_change, missing_change
from store.redis.client import WrongKeys
from store.tables import DeletedJob, Job, Service

logger = logging.getLogger(__name__)

_OLDEST = in_us(timedelta(minutes=10))
"""A line that nobody compared for longer is filled anew."""
_AT_ONCE = 1000
_AUDITED = 250
"""Of the entries, and of the rows, which are compared in each sweep although nothing is known to have changed."""

_ORDER = (Job.priority, Job.owner, Job.device_request, Job.created_at, Job.id)
# Built once, because each sweep executes them.
_ROWS = select(*COLUMNS).where(in_line(), Job.id.in_(bindparam("ids", expanding=True)))
_NEXT = (
    select(*COLUMNS)
    .where(in_line(), tuple_(*_ORDER) > tuple_(*(bindparam(column.key) for column in _ORDER)))
    .order_by(*_ORDER)
    .limit(bindparam("limit"))
)
_CHANGED = (
    select(Job.lined_at.label("since"), Job.id)
    .where(tuple_(Job.lined_at, Job.id) > tuple_(bindparam("since"), bindparam("above")))
    .order_by(Job.lined_at, Job.id)
    .limit(_AT_ONCE)
)
_DELETED = (
    select(DeletedJob.deleted_at.label("since"), DeletedJob.job_id.label("id"))
    .where(tuple_(DeletedJob.deleted_at, DeletedJob.job_id) > tuple_(bindparam("since"), bindparam("above")))
    .order_by(DeletedJob.deleted_at, DeletedJob.job_id)
    .limit(_AT_ONCE)
)
_START = {"priority": -(2**31), "owner": "", "device_request": "", "created_at": -1, "id": ""}


class Sweep:
    """Of one program. Not for several threads at once, but for `compare`. All raise Unavailable, for Redis too."""

    def __init__(self, upkeep: Upkeep, database: Database) -> None:
        """It reads and writes the database itself, as a transaction of the store would ask it to compare again."""
        self._upkeep = upkeep
        self._database = database
        self._scanned = 0
        self._passed: dict[str, Any] = _START

    def run(self) -> bool:
        """Makes the line equal to the rows. Returns whether it differed."""
        try:
            stamp = self._upkeep.stamp()
            run_id = self._upkeep.run_id()
            now, swept_at = self._times()
            if stamp is None or stamp.run_id != run_id or not _is_plausible(stamp, now=now, swept_at=swept_at):
                return self._rebuild(run_id)
            # All of them, whatever the first ones find.
            differed = [self.compare(ids) for ids in self._suspects(stamp.swept_at - LATE_US)]
        except WrongKeys as error:
            logger.warning("%s: refilling the queue in Redis", error.message)
            return self._rebuild(self._upkeep.run_id())
        self._upkeep.renew(self._swept(run_id, now))
        return any(differed)

    def compare(self, job_ids: Sequence[str]) -> bool:
        """Makes the entries of these jobs equal to their rows. Returns whether any differed."""
        if not job_ids:
            return False
        # Redis first: what a commit says to it later, the change below leaves alone.
        seen = self._upkeep.entries(job_ids)
        with self._database.read() as session:
            entries = {row.id: entry_of(row) for row in session.execute(_ROWS, {"ids": list(job_ids)})}
        changes = [
            missing_change(job_id, entry, entries.get(job_id)) for job_id, entry in zip(job_ids, seen, strict=True)
        ]
        needed = [change for change in changes if change is not None]
        if needed:
            logger.info("Redis had %d queue entries that differ from the rows, such as %s", len(needed), needed[0][0])
        self._upkeep.change(needed)
        return bool(needed)

    def _suspects(self, since: int) -> Iterator[list[str]]:
        """Yields the jobs that changed since then, and some of which nothing is known, in parts."""
        for query in (_CHANGED, _DELETED):
            last: tuple[int, str] = (since, "")
            while rows := self._execute(query, {"since": last[0], "above": last[1]}):
                last = rows[-1].since, rows[-1].id
                yield [row.id for row in rows]
                if len(rows) < _AT_ONCE:
                    break
        self._scanned, job_ids = self._upkeep.scan(self._scanned, count=_AUDITED)
        yield from _parts(job_ids)
        rows = self._execute(_NEXT, {**self._passed, "limit": _AUDITED})
        self._passed = _position(rows[-1]) if len(rows) == _AUDITED else _START
        yield [row.id for row in rows]

    def _rebuild(self, run_id: str) -> bool:
        """Fills the line anew. Returns False if another worker does."""
        token = secrets.token_hex(8)
        if not self._upkeep.begin(token):
            return False
        # What is announced from here on is in Redis, and what is announced too late is found in the next sweep.
        now, _ = self._times()
        count, passed = 0, _START
        while rows := self._execute(_NEXT, {**passed, "limit": _AT_ONCE}):
            if not self._upkeep.go_on(token):
                return False
            self._upkeep.change([committed_change(row.id, entry_of(row)) for row in rows])
            count, passed = count + len(rows), _position(rows[-1])
        done = self._upkeep.finish(token, self._swept(run_id, now))
        if done:
            logger.info("refilled the queue in Redis: %d jobs", count)
        return done

    def _times(self) -> tuple[int, int | None]:
        """Returns the database's time, and when it remembers that the line was compared last."""
        with self._database.read() as session:
            now = session.scalars(select(now_us())).one()
            return now, session.scalar(select(Service.line_swept_at))

    def _swept(self, run_id: str, now: int) -> Stamp:
        """Returns the stamp of a sweep that began at `now`. The database remembers it first."""
        with self._database.write("sweep") as session:
            session.execute(update(Service).where(Service.line_swept_at < now).values(line_swept_at=literal(now)))
        return Stamp(run_id, now)

    def _execute(self, query: Any, where: dict[str, Any]) -> Sequence[Row[Any]]:
        with self._database.read() as session:
            return session.execute(query, where).all()


def _is_plausible(stamp: Stamp, *, now: int, swept_at: int | None) -> bool:
    """Returns whether the database is at least as new as the stamp, and the stamp not older than a restored Redis."""
    return (swept_at is None or stamp.swept_at <= swept_at) and 0 <= now - stamp.swept_at <= _OLDEST


def _position(row: Any) -> dict[str, Any]:
    return {column.key: getattr(row, column.key) for column in _ORDER}


def _parts(job_ids: list[str]) -> Iterator[list[str]]:
    return (job_ids[first : first + _AT_ONCE] for first in range(0, len(job_ids), _AT_ONCE))
