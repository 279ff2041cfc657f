"""Names an attempt."""

from dataclasses import dataclass


@dataclass(frozen=True)
class AttemptKey:
    """Identifies an attempt on every host. A second start with the same key starts nothing."""

    job_id: str
    number: int
