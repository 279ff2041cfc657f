"""Requests that create jobs, and what it created."""

from dataclasses import dataclass

from store.facts.callers import Caller
from store.facts.jobs import JobFacts
from torchyard.contract.spec import Spec
from torchyard.contract.team import Visibility


@dataclass(frozen=True)
class KeyedRequest:
    """A request with its idempotency key. `fingerprint` is a digest of all that a repetition must not change."""

    owner: str
    key: str
    fingerprint: str


@dataclass(frozen=True)
class NewJob:
    """A job to store. `visibility`: the default visibility, for a spec that sets none."""

    spec: Spec
    owner: str
    visibility: Visibility = "private"
    retry_of: str | None = None


@dataclass(frozen=True)
class Submission:
    """A job that a caller submits. `visibility`: the default visibility, for a spec that sets none.

    `retry_of`: the job that it goes on with, of which the transaction has the row.
    """

    spec: Spec
    caller: Caller
    visibility: Visibility
    keyed: KeyedRequest | None = None
    retry_of: str | None = None


@dataclass(frozen=True)
class Retry:
    """A request to submit the spec of an ended job again, which goes on from the job's newest checkpoint."""

    job_id: str
    caller: Caller
    keyed: KeyedRequest | None = None


@dataclass(frozen=True)
class Submitted:
    """A job that was created by this request or, if `replayed`, by an earlier one with the same key."""

    job: JobFacts
    status: int
    location: str
    replayed: bool = False
