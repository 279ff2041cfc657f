"""What a forecast of one job is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduling.alternatives import Alternative
from scheduling.calibration import Track
from scheduling.snapshot import Snapshot, Waiting
from store.jobs.submission import Prospect
from store.queue.estimates_facts import EstimateFacts, Seen

_FOR_DEVICES = frozenset({"waiting", "devices_busy", "reserved", "preempting", "quota"})
"""The codes of the reasons of jobs in the line that start when others have ended."""


@dataclass(frozen=True)
class Waits:
    """A job that waits in the line, or would."""

    job: Waiting
    around: Snapshot
    """What the plan was made of that says so. The job may be in its line."""


@dataclass(frozen=True)
class Foresight:
    """What is known of one job at one moment."""

    prospect: Prospect
    waits: Waits | None = None
    """None: it starts at once, or is not in the line."""

    @property
    def waits_for_others(self) -> bool:
        """Whether it starts when others have ended."""
        reason = self.prospect.reason
        return self.waits is not None and reason is not None and reason.code in _FOR_DEVICES


@dataclass(frozen=True)
class Ahead:
    """What a replay for one job is made of."""

    line: Seen
    """The job is in it."""
    tracks: Mapping[int, Track] = field(default_factory=dict[int, Track])
    """What earlier estimates have taught, by bucket."""


@dataclass(frozen=True)
class Forecast:
    """What was found of one job."""

    estimate: EstimateFacts | None = None
    later_than: int | None = None
    """Instead of an estimate: the job does not start before that moment."""
    alternatives: tuple[Alternative, ...] = ()
    """Changes with which it would start now."""
