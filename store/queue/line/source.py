"""What is asked of the line, whoever answers: Redis (`from_redis`) or SQL (`from_sql`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from scheduling.snapshot import Group
from store.queue.line_facts import Bucket, Credits, Member, Standing

Mark = tuple[int, str]
"""A position among buckets of one class: the time of submission less a credit, and an id."""


@dataclass(frozen=True, slots=True)
class Priced:
    """A bucket with the credit of its owner. Jobs are ordered by their submission less that, over all buckets."""

    bucket: Bucket
    credit: int

    def mark(self, member: Member) -> Mark:
        """Returns the position of a job of the bucket."""
        return member.submitted - self.credit, member.id


class Source(Protocol):
    """Each question costs by groups, buckets and what it answers; that of Redis never by the number of jobs."""

    def heads(self) -> Mapping[Group, Member]:
        """Returns the first job of each group."""
        ...

    def successors(self, group: Group, after: Member, *, limit: int) -> Sequence[Member]:
        """Returns the next jobs of the group behind `after`, which need not be one of them."""
        ...

    def buckets(self) -> Mapping[Bucket, int]:
        """Returns how many jobs each bucket has that has any."""
        ...

    def page(self, classes: Sequence[Sequence[Priced]], *, after: Mark | None, limit: int) -> Sequence[Standing]:
        """Returns the first jobs: those of the first class before those of the next one. `after` is of the first."""
        ...

    def positions(self, credits: Credits, jobs: Sequence[Standing]) -> Sequence[int]:
        """Returns the position of each of the jobs, from 1. The line need not have them yet."""
        ...
