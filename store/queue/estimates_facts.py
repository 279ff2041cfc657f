"""Estimates of when waiting jobs start. Times are microseconds since the epoch, by the database's clock."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from scheduling.snapshot import Snapshot

MOST_ESTIMATED = 200
"""So many jobs, the first in the line, are looked at."""
LEASE = timedelta(seconds=30)
"""So long a worker may make the estimates after it has taken or renewed the lease."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to store estimates."""

    holder: str
    """The id of a worker."""
    token: int
    """Rises by one whenever the lease is taken."""


@dataclass(frozen=True)
class Seen:
    """The cluster with the first jobs in the line."""

    snapshot: Snapshot
    """Its line has those jobs, and all that have a kept place or for which others are asked to stop."""
    after: int = 0
    """How many jobs of the line are not in the snapshot: those further behind, and those held back after a failure."""
    attempts: Mapping[str, int] = field(default_factory=dict[str, int])
    """The number that the next attempt of each job will have. Those that are not stored yet are not in it."""
    is_newcomer_behind: bool = False
    """Whether jobs stand before the newcomer that are not in the snapshot: it starts later than a replay says."""


@dataclass(frozen=True, slots=True)
class Estimated:
    """An estimate of a waiting job."""

    job_id: str
    attempt: int
    """The number that its next attempt has."""
    wait_us: int
    """What the replay said, before any correction."""
    bucket: int
    expected: int
    low: int | None
    high: int | None


@dataclass(frozen=True, slots=True)
class EstimateFacts:
    """The newest estimate of a waiting job, and how well such estimates did."""

    expected: int | None
    """None: the job is too far behind to be looked at, and starts after `low`."""
    low: int | None
    high: int | None
    made_at: int
    held: int
    """Of the last estimates of such a wait, how many held."""
    of: int
    """How many these were; without an interval, how many of all have come true or not so far."""
