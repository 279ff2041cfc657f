"""The order of the line: those within their quotas first, then the highest priority, then submission less credit."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from store.facts.jobs import QueueCursor
from store.facts.line import Bucket, Credits, Standing
from store.line.source import Mark, Priced

Class = tuple[bool, int]
"""Whether the owners of its jobs are over their quotas, and the negative priority. Lower ones come first."""


def classes_of(buckets: Iterable[Bucket], credits: Credits) -> list[tuple[Class, list[Priced]]]:
    """Returns the buckets by their classes, in the order of the line."""
    found: dict[Class, list[Priced]] = defaultdict(list)
    for bucket in buckets:
        found[class_of(bucket, credits)].append(Priced(bucket, credits.of(bucket)))
    return sorted(found.items(), key=lambda item: item[0])


def class_of(bucket: Bucket, credits: Credits) -> Class:
    """Returns the class of the jobs of a bucket."""
    return credits.is_last(bucket), -bucket.priority


def places_of_newest(
    counts: Mapping[Bucket, int],
    credits: Credits,
    jobs: Collection[Standing],
    *,
    before: Callable[[Sequence[Priced], Sequence[Mark]], Sequence[int]],
) -> dict[str, int]:
    """Returns the positions of jobs, from 1, by id. They are the last ones of their buckets, whose sizes are `counts`.

    `before` is as in `store.line.source.Source`. It is asked only where buckets of several owners are mixed.
    """
    classes = dict(classes_of(counts, credits))
    buckets: dict[Bucket, list[Standing]] = defaultdict(list)
    for job in jobs:
        buckets[job.bucket].append(job)
    found: dict[str, int] = {}
    for bucket, new in buckets.items():
        place = class_of(bucket, credits)
        ahead = sum(counts[priced.bucket] for name, some in classes.items() if name < place for priced in some)
        beside = [priced for priced in classes.get(place, ()) if priced.bucket != bucket]
        new.sort(key=lambda job: job.member.order)
        others = before(beside, [mark_of(job, credits) for job in new]) if beside else [0] * len(new)
        first = max(1, counts.get(bucket, 0) - len(new) + 1)  # a worker may have taken some already
        found |= {job.member.id: ahead + first + number + others[number] for number, job in enumerate(new)}
    return found


def mark_of(job: Standing, credits: Credits) -> Mark:
    """Returns the position of a job in its class."""
    return Priced(job.bucket, credits.of(job.bucket)).mark(job.member)


def cursor_of(job: Standing, credits: Credits) -> QueueCursor:
    """Returns the position of a job in the line."""
    over_quota, _ = class_of(job.bucket, credits)
    key, job_id = mark_of(job, credits)
    return QueueCursor(job.bucket.priority, key, job_id, over_quota)


def behind(
    classes: Sequence[tuple[Class, list[Priced]]], cursor: QueueCursor | None
) -> tuple[list[list[Priced]], Mark | None]:
    """Returns the buckets behind the cursor, class by class, and the mark behind which the first class is read.

    The mark is None if the first class is read from its start.
    """
    if cursor is None:
        return [buckets for _, buckets in classes], None
    place = cursor.over_quota, -cursor.priority
    left = [(name, buckets) for name, buckets in classes if name >= place]
    inside = bool(left) and left[0][0] == place
    return [buckets for _, buckets in left], (cursor.key, cursor.job_id) if inside else None
