"""A request that creates a job, and what it created."""

from dataclasses import dataclass

from store.facts.jobs import JobFacts


@dataclass(frozen=True)
class KeyedRequest:
    """A request with its idempotency key. `fingerprint` is a digest of all that a repetition must not change."""

    owner: str
    key: str
    fingerprint: str


@dataclass(frozen=True)
class Submitted:
    """A job that was created by this request or, if `replayed`, by an earlier one with the same key."""

    job: JobFacts
    status: int
    location: str
    replayed: bool = False
