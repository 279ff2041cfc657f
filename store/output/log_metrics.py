"""Curves of the stored lines of an ended job, by an expression that a user has written."""

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
import time

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from store.jobs import events as job_events
from store.output import logs, metrics
from store.output.facts import DEFAULTS, LOG, LogFilter, MetricPoint
from store.output.line_patterns import LinePattern
from store.store import Store
from store.tables import Attempt, Job, Series
from store.team import access, audit, quotas
from store.team.callers import Caller
from torchyard.contract.errors import Conflict, InvalidRequest
from torchyard.contract.states import JobState

MOST_TEXT, MOST_POINTS, MOST_SECONDS = 64 << 20, 100_000, 5.0
"""Characters that are read, points that are found, and processor time that both take, at most."""
PART_S = 0.05
"""Processor time of a part, after which others may have the thread."""
_RANK_0 = LogFilter(rank=0)


@dataclass(frozen=True)
class NewCurves:
    """`keys`: the new curves. `known`: what the lines have besides, of which there were curves."""

    keys: list[str]
    known: list[str]
    points: int
    complete: bool
    """Whether all stored lines were searched."""


class LogCurves:
    """What one expression finds in the lines of rank 0. Those of an attempt without steps are counted from 1."""

    def __init__(self, job_id: str, pattern: str) -> None:
        """Raises InvalidRequest if it is no expression of RE2."""
        try:
            self._pattern = LinePattern.of(pattern)
        except ValueError as error:
            raise InvalidRequest(f"the pattern is not an expression of RE2: {error}") from None
        self._job_id = job_id
        self._found: dict[int, list[MetricPoint]] = {}
        """By attempt."""
        self._counted: dict[int, int] = {}
        self._last = 0
        """The number of the last line that was searched."""
        self._text = self._points = 0
        self._seconds = 0.0
        self._has_all = False

    def make(self, store: Store, *, caller: Caller) -> Generator[None, None, NewCurves]:
        """Searches a part, in a transaction of its own, before each item. Then stores the points in one transaction.

        A metric that has a curve already gets no points, so the same request again changes nothing. Raises NotFound,
        Forbidden, and Conflict if the job has not ended, or it or its owner may store no more.
        """
        with store.read() as session:
            access.check_own(session, self._job_id, caller)
        while not self._is_done:
            self._search(store)
            yield
        with store.write("log_curves") as session:
            return self._store(session, caller)

    @property
    def _is_done(self) -> bool:
        bounds = (self._text >= MOST_TEXT, self._points >= MOST_POINTS, self._seconds >= MOST_SECONDS)
        return self._has_all or any(bounds)

    def _search(self, store: Store) -> None:
        began = time.thread_time()
        with store.read() as session:
            chunks = logs.read_chunks(session, self._job_id, self._last + 1, _RANK_0)
            with closing(chunks):
                for chunk in chunks:
                    self._last = chunk.first + chunk.count - 1
                    self._text += len(chunk.text)
                    for line in chunk.text.split("\n"):
                        self._search_line(line, chunk.attempt, chunk.time)
                    if self._is_done or time.thread_time() - began >= PART_S:
                        break
                else:
                    self._has_all = True
        self._seconds += time.thread_time() - began

    def _search_line(self, line: str, attempt: int, written: int) -> None:
        if self._points >= MOST_POINTS:
            return
        following = self._counted.get(attempt, 0) + 1
        ends = time.thread_time() + PART_S
        if points := [*self._pattern.points(line.encode(), counted=following, now=written, ends=ends)]:
            self._counted[attempt] = following
            self._found.setdefault(attempt, []).extend(points)
            self._points += len(points)

    def _store(self, session: Session, caller: Caller) -> NewCurves:
        # In the order in which a deletion and an attempt's own writes lock them.
        session.execute(select(Attempt.id).where(Attempt.job_id == self._job_id).order_by(Attempt.id).with_for_update())
        job = access.lock(session, self._job_id, caller)
        if not JobState(job.state).terminal:
            raise Conflict(f"job {self._job_id} has not finished: metrics are extracted only from finished jobs' logs")
        keys = {point.key for points in self._found.values() for point in points}
        known = set(session.scalars(select(Series.key).where(Series.job_id == self._job_id))) & keys
        wanted = {
            number: [point for point in points if point.key not in known] for number, points in self._found.items()
        }
        count = sum(map(len, wanted.values()))
        if count:
            self._check_room(session, job, count)
        stored = sum(self._add(session, number, points) for number, points in wanted.items() if points)
        if stored:
            text = f"curves were made of the stored lines: {', '.join(sorted(keys - known)[:5])}"
            job_events.append(session, job.id, type="message", attempt=None, data={"level": "info", "text": text})
            audit.add(session, caller, "job.log_curves", job.id)
        return NewCurves(sorted(keys - known), sorted(known), stored, self._has_all)

    def _add(self, session: Session, number: int, points: list[MetricPoint]) -> int:
        added = metrics.add(session, self._job_id, attempt=number, points=points, source=LOG)
        hides = func.coalesce(Attempt.hides_after, min(point.step for point in points) - 1)
        size = Attempt.point_bytes + added.stored * metrics.POINT.size
        of = (Attempt.job_id == self._job_id, Attempt.number == number)
        session.execute(update(Attempt).where(*of).values(hides_after=hides, point_bytes=size))
        return added.stored

    def _check_room(self, session: Session, job: Job, count: int) -> None:
        total = select(func.coalesce(func.sum(Attempt.point_bytes), 0)).where(Attempt.job_id == job.id)
        size = int(session.execute(total).scalar_one()) + count * metrics.POINT.size
        if DEFAULTS.point_bytes is not None and size > DEFAULTS.point_bytes:
            raise Conflict("the job has the maximum number of points")
        if quotas.bytes_left(session, job.owner) == 0:
            raise Conflict(f"{job.owner} exceeds the storage quota")
