"""What jobs take: bytes that are stored of them, and their working folders on hosts."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FolderFacts:
    """The working folder of a job on one host. `measured_at`: microseconds since the epoch."""

    host: str
    size: int
    measured_at: int


@dataclass(frozen=True, slots=True)
class JobUse:
    """What one job takes."""

    job_id: str
    name: str
    state: str
    stored: int
    """Bytes of its checkpoints, files and media."""
    folders: Sequence[FolderFacts]


@dataclass(frozen=True, slots=True)
class DiskUse:
    """What the jobs of one owner take: all of them, and those that take most."""

    stored: int
    folders: int
    count: int
    """The jobs that take anything."""
    jobs: Sequence[JobUse]
