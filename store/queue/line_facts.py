"""The line of queued jobs: where a job stands in it, and how much credit its owner has. Times are microseconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from scheduling.snapshot import Group, Kind

OwnerKind = tuple[str, str]
"""An owner, and the kind of devices that their jobs count as."""


class Bucket(NamedTuple):
    """The queued jobs of one owner, request and priority. Among themselves, the order never changes."""

    owner: str
    request: str
    """`resources.device` of their specs: `auto`, `cuda` or `cpu`."""
    priority: int


class Member(NamedTuple):
    """A job of a bucket or of a group, which are ordered by these."""

    id: str
    submitted: int

    @property
    def order(self) -> tuple[int, str]:
        return self.submitted, self.id


@dataclass(frozen=True, slots=True)
class LineEntry:
    """Where a queued job stands."""

    bucket: Bucket
    submitted: int
    shape: str | None
    """None: no group has it, because it is held back after a failure."""
    changed: int
    """When this became so."""

    @property
    def group(self) -> Group | None:
        return None if self.shape is None else (self.shape, self.bucket.priority)


@dataclass(frozen=True, slots=True)
class Left:
    """A job is not queued. `changed`: since when; None if that is not known."""

    changed: int | None = None


@dataclass(frozen=True)
class Credits:
    """What the order of the line depends on, besides the jobs."""

    by_owner: Mapping[OwnerKind, int] = field(default_factory=dict[OwnerKind, int])
    default: int = 0
    """Of who is not in `by_owner`."""
    auto: Kind = "cuda"
    """The kind that jobs of the request `auto` count as."""
    over_quota: frozenset[OwnerKind] = frozenset()
    """Those whose jobs come after all others."""

    def kind_of(self, request: str) -> str:
        """Returns the kind that jobs of this request count as."""
        return self.auto if request == "auto" else request

    def knows(self, bucket: Bucket) -> bool:
        """Returns whether the credit of the jobs of the bucket was counted."""
        return (bucket.owner, self.kind_of(bucket.request)) in self.by_owner

    def of(self, bucket: Bucket) -> int:
        """Returns the credit of the jobs of a bucket."""
        return self.by_owner.get((bucket.owner, self.kind_of(bucket.request)), self.default)

    def is_last(self, bucket: Bucket) -> bool:
        """Returns whether the jobs of a bucket come after all others."""
        return (bucket.owner, self.kind_of(bucket.request)) in self.over_quota


class Standing(NamedTuple):
    """A queued job as the order of the line sees it."""

    bucket: Bucket
    member: Member
