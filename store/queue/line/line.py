"""The line for one transaction: Redis answers, and SQL where Redis is away or is not to be trusted."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from sqlalchemy.orm import Session

from scheduling.snapshot import Group
from store.jobs.facts import QueueCursor
from store.queue.line import order
from store.queue.line.from_redis import RedisLine
from store.queue.line.from_sql import SqlLine
from store.queue.line.source import Source
from store.queue.line_facts import Bucket, Credits, Member, Standing
from store.redis.client import QueueUnavailable

T = TypeVar("T")

_KEY = "torchyard.line"


class Line:
    """Redis may be ahead of the transaction or behind it: who reads an id here reads its row next."""

    def __init__(self, session: Session, redis: RedisLine | None = None) -> None:
        self.suspects: set[str] = set()
        """Jobs of which Redis and the rows said different things. They are compared when the transaction has ended."""
        self._sql = SqlLine(session)
        self._redis = redis
        self._buckets: Mapping[Bucket, int] | None = None

    @property
    def asks_redis(self) -> bool:
        """Whether Redis has answered all that was asked so far."""
        return self._redis is not None

    def heads(self) -> Mapping[Group, Member]:
        """Returns the first job of each group."""
        return self._answer(lambda source: source.heads())

    def successors(self, group: Group, after: Member, *, limit: int) -> Sequence[Member]:
        """Returns the next jobs of the group behind `after`, which need not be one of them."""
        return self._answer(lambda source: source.successors(group, after, limit=limit))

    def buckets(self) -> Mapping[Bucket, int]:
        """Returns how many jobs each bucket has that has any: who waits, for what, at which priority."""
        if self._buckets is None:
            self._buckets = self._answer(lambda source: source.buckets())
        return self._buckets

    def page(self, credits: Credits, *, after: QueueCursor | None, limit: int) -> Sequence[Standing]:
        """Returns queued jobs in the order of the line, with `after` those behind that position."""
        classes, mark = order.after(order.classes_of(self.buckets(), credits), after)
        return self._answer(lambda source: source.page(classes, after=mark, limit=limit))

    def positions(self, credits: Credits, jobs: Collection[Standing]) -> dict[str, int]:
        """Returns the positions of queued jobs, from 1, by id. The line need not have them yet."""
        asked = list(jobs)
        answer = self._answer(lambda source: source.positions(credits, asked))
        return {job.member.id: position for job, position in zip(asked, answer, strict=True)}

    def distrust(self, job_ids: Collection[str]) -> None:
        """Has these jobs compared when the transaction has ended, and SQL answer all that is asked until then."""
        self.suspects.update(job_ids)
        self.ask_sql()

    def ask_sql(self) -> None:
        """Has SQL answer from here on: it alone knows what the transaction itself has moved."""
        self._redis = self._buckets = None

    def _answer(self, ask: Callable[[Source], T]) -> T:
        if self._redis is not None:
            try:
                return ask(self._redis)
            except QueueUnavailable:
                self._redis = None
        return ask(self._sql)


def attach(session: Session, redis: RedisLine) -> Line:
    """Has the session's transaction read the line from Redis first. Returns its line."""
    line = session.info[_KEY] = Line(session, redis)
    return line


def line_of(session: Session) -> Line:
    """Returns the line for the session's transaction; that of SQL alone if none was attached."""
    return session.info.setdefault(_KEY, Line(session))
