"""What a worker keeps of what has ended."""

from dataclasses import dataclass
from datetime import timedelta

from store.output.facts import TrimLimits


@dataclass(frozen=True, kw_only=True)
class Retention:
    """What is kept, and for how long. None keeps everything."""

    finished_jobs: TrimLimits
    """What is kept of a finished job in the database."""
    runs: timedelta | None = None
    """How long run directories are kept after the end of their attempt."""
    run_bytes: int | None = None
    """Bytes of all run directories and working folders of this host."""
    folders: timedelta | None = None
    """How long a working folder is kept after the end of its job."""
    unused_bundles: timedelta | None = None
    """How long a bundle that no job names is kept after its last use."""
    cache_bytes: int | None = None
    """Bytes of all owners' caches on this host."""
