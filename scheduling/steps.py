"""What a plan says: which jobs start where, which stop for which, which places are kept, and why others wait."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from scheduling.credit import kind_of
from scheduling.snapshot import Displacement, Group, Place, Placement, Reservation, Waiting
from torchyard.contract.states import Reason

Why = Literal["priority", "first_look", "waited", "due"]
"""Why jobs stop for another: it has a higher priority, or its first look, or waited long, or its place is due."""


@dataclass(frozen=True)
class Start:
    """The job starts there."""

    job: Waiting
    placement: Placement
    reservation: Reservation | None
    """The one of `Plan.reservations` at this place, for this job or another. A claim needs it to be stored so, and
    nothing to be kept there without one."""
    guest: bool = False
    """Whether the job must be stopped when the place is due."""

    @property
    def place(self) -> Place:
        """Where the job starts. All devices of a placement are of one kind."""
        devices = self.placement.devices
        kind = devices[0].kind if devices else kind_of(self.job.resources, any_gpu=False)
        return self.placement.worker_id, kind


@dataclass(frozen=True)
class Stop:
    """The victims of the displacements are asked to stop, so that the job can start."""

    job: Waiting
    displacements: tuple[Displacement, ...]
    """All of one worker."""
    why: Why
    reason: Reason
    """Why the job waits from then on."""


@dataclass(frozen=True)
class Reasons:
    """Why jobs wait. A job's own reason stands before that of its shape. Reasons hold no times."""

    by_shape: Mapping[str, Reason]
    by_job: Mapping[str, Reason]

    def of(self, job: Waiting) -> Reason | None:
        """Returns why the job waits; None if the plan says nothing of it."""
        return self.by_job.get(job.id) or self.by_shape.get(job.shape)


@dataclass(frozen=True)
class Plan:
    """What to do on all hosts, and the reasons of the jobs that wait when it is done."""

    steps: tuple[Start | Stop, ...]
    """In the order in which they must be carried out, after the reservations were stored."""
    reservations: tuple[Reservation, ...]
    """All that are to be kept. One whose version is that of its row is stored; the others follow their row's by one."""
    reasons: Reasons
    used_up: frozenset[Group] = frozenset()
    """The groups of which no job in the line waits: to be complete, the line needs their next jobs."""
    again_at: int | None = None
    """When a plan may say something else although nothing has happened; None: only when something happens."""

    @property
    def starts(self) -> tuple[Start, ...]:
        return tuple(step for step in self.steps if isinstance(step, Start))

    @property
    def stops(self) -> tuple[Stop, ...]:
        return tuple(step for step in self.steps if isinstance(step, Stop))
