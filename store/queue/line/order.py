"""The order of the line: those within their quotas first, then the highest priority, then submission less credit."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from store.jobs.facts import QueueCursor
from store.queue.line.source import Mark, Priced
from store.queue.line_facts import Bucket, Credits, Standing

Class = tuple[bool, int]
"""Whether the owners of its jobs are over their quotas, and the negative priority. Lower ones come first."""


def classes_of(buckets: Iterable[Bucket], credits: Credits) -> list[tuple[Class, list[Priced]]]:
    """Returns the buckets by their classes, in the order of the line."""
    by_class: dict[Class, list[Priced]] = defaultdict(list)
    for bucket in buckets:
        by_class[class_of(bucket, credits)].append(Priced(bucket, credits.of(bucket)))
    return sorted(by_class.items(), key=lambda item: item[0])


def class_of(bucket: Bucket, credits: Credits) -> Class:
    """Returns the class of the jobs of a bucket."""
    return credits.is_last(bucket), -bucket.priority


def mark_of(job: Standing, credits: Credits) -> Mark:
    """Returns the position of a job in its class."""
    return Priced(job.bucket, credits.of(job.bucket)).mark(job.member)


def cursor_of(job: Standing, credits: Credits) -> QueueCursor:
    """Returns the position of a job in the line."""
    over_quota, _ = class_of(job.bucket, credits)
    key, job_id = mark_of(job, credits)
    return QueueCursor(job.bucket.priority, key, job_id, over_quota)


def after(
    classes: Sequence[tuple[Class, list[Priced]]], cursor: QueueCursor | None
) -> tuple[list[list[Priced]], Mark | None]:
    """Returns the buckets behind the cursor, class by class, and the mark behind which the first class is read.

    The mark is None if the first class is read from its start.
    """
    if cursor is None:
        return [buckets for _, buckets in classes], None
    first_class = cursor.over_quota, -cursor.priority
    left = [(name, buckets) for name, buckets in classes if name >= first_class]
    inside = bool(left) and left[0][0] == first_class
    return [buckets for _, buckets in left], (cursor.key, cursor.job_id) if inside else None
