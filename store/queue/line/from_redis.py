"""The line as Redis has it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
import json
from typing import Any

from redis import Redis

from scheduling.snapshot import Group
from store.queue.line import questions
from store.queue.line.scripts import Script
from store.queue.line.source import Mark, Priced
from store.queue.line_facts import Bucket, Credits, LineEntry, Member, Standing
from store.redis import names as redis_names
from store.redis.client import Pause, QueueUnavailable

_MOST_MARKS = 100
"""Jobs whose positions one script counts, in each bucket, so that Redis answers others in between."""


class LineNotReady(QueueUnavailable):
    """Redis has no line, or one that is being made."""


class RedisLine:
    """Every method raises QueueUnavailable: Redis is away, forbids it, or has no complete line."""

    def __init__(self, redis: Redis, *, service: Callable[[], str], pause: Pause) -> None:
        self._redis = redis
        self._service = service
        self._pause = pause

    def heads(self) -> Mapping[Group, Member]:
        answer = self._ask(questions.HEADS)
        return {group_named(name): _member(job_id, score) for name, job_id, score in _triples(answer)}

    def successors(self, group: Group, after: Member, *, limit: int) -> Sequence[Member]:
        answer = self._ask(questions.SUCCESSORS, group_name(group), after.submitted, after.id, limit)
        return [_member(job_id, score) for job_id, score in zip(answer[::2], answer[1::2], strict=True)]

    def buckets(self) -> Mapping[Bucket, int]:
        answer = self._ask(questions.BUCKETS)
        return {_bucket_named(name): int(count) for name, count in zip(answer[::2], answer[1::2], strict=True)}

    def page(self, classes: Sequence[Sequence[Priced]], *, after: Mark | None, limit: int) -> Sequence[Standing]:
        priced = [_priced(buckets) for buckets in classes]
        names = (name for buckets in priced for _, name in buckets)
        named = dict(zip(names, (one.bucket for buckets in classes for one in buckets), strict=True))
        answer = self._ask(questions.PAGE, limit, json.dumps(after or ()), json.dumps(priced))
        return [Standing(named[name], _member(job_id, score)) for name, job_id, score in _triples(answer)]

    def positions(self, credits: Credits, jobs: Sequence[Standing]) -> Sequence[int]:
        positions: list[int] = []
        for first in range(0, len(jobs), _MOST_MARKS):
            positions += self._ask(questions.POSITIONS, *positions_of(credits, jobs[first : first + _MOST_MARKS]))
        return positions

    def _ask(self, script: Script, *arguments: str | int) -> list[Any]:
        with self._pause.translated():
            answer = script.run(self._redis, redis_names.line(self._service()), arguments)
        if answer is None:
            raise LineNotReady("the queue in Redis is incomplete")
        return json.loads(answer) or []  # Lua writes an empty list as an empty object


def positions_of(credits: Credits, jobs: Sequence[Standing]) -> tuple[str, str]:
    """Returns the arguments of `store.queue.line.questions.POSITIONS` for some jobs."""
    standings = json.dumps(
        {
            "of": {f"{kind}:{owner}": credit for (owner, kind), credit in credits.by_owner.items()},
            "default": credits.default,
            "auto": credits.auto,
            "last": {f"{kind}:{owner}": True for owner, kind in credits.over_quota},
        }
    )
    return standings, json.dumps([(bucket_name(job.bucket), job.member.submitted, job.member.id) for job in jobs])


def written(entry: LineEntry) -> str:
    """Returns the entry as Redis stores it."""
    group = "" if entry.group is None else group_name(entry.group)
    return f"{entry.changed}|{entry.submitted}|{group}|{bucket_name(entry.bucket)}"


def bucket_name(bucket: Bucket) -> str:
    """Returns the bucket's part of a key."""
    return f"{bucket.priority}:{bucket.request}:{bucket.owner}"


def group_name(group: Group) -> str:
    """Returns the group's part of a key."""
    shape, priority = group
    return f"{priority}:{shape}"


def group_named(name: str) -> Group:
    """Returns the group with this part of a key."""
    priority, _, shape = name.partition(":")
    return shape, int(priority)


def _priced(buckets: Sequence[Priced]) -> list[tuple[int, str]]:
    return [(priced.credit, bucket_name(priced.bucket)) for priced in buckets]


def _bucket_named(name: str) -> Bucket:
    priority, request, owner = name.split(":", 2)
    return Bucket(owner, request, int(priority))


def _member(job_id: str, score: str) -> Member:
    return Member(job_id, int(float(score)))


def _triples(values: Sequence[Any]) -> Iterator[tuple[Any, Any, Any]]:
    return zip(values[::3], values[1::3], values[2::3], strict=True)
