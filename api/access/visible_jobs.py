"""What a caller may see of some jobs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class VisibleJobs:
    """Ids of jobs: those that a caller may read, and those that exist."""

    readable: frozenset[str]
    existing: frozenset[str]
