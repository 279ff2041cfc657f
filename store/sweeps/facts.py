"""What is asked of sweeps, and what is known of their trials. What a sweep is, its views say."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
import math
from typing import TypeAlias

from store.jobs.submission import KeyedRequest
from store.team.callers import Caller
from torchyard.contract.states import JobState
from torchyard.contract.sweeps.spec import Halving, Method, Point, SweepSpec, SweepState
from torchyard.contract.team.roles import Visibility


@dataclass(frozen=True)
class RungFacts:
    """What a trial of `asha` had reached when it stopped at a rung."""

    at: int
    """Epochs or steps, as `halving.unit` says."""
    value: float | None
    """The best value until then; None if it had none, or NaN."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What ranks a trial among those of its sweep, of which the numbers have no gaps."""

    number: int
    job_id: str | None
    """None if the job was deleted, or was refused when it was to be made."""
    value: float | None
    """The best value of the sweep's metric so far; None if there is none, NaN if it measured nothing else."""

    @property
    def has_value(self) -> bool:
        """Whether it can be ranked."""
        return self.value is not None and not math.isnan(self.value)


@dataclass(frozen=True, kw_only=True)
class TrialFacts(Standing):
    """A trial whose row is there."""

    point: Point
    point_omitted: bool = False
    """Whether it is long and was asked for a list: then none of it is there."""
    state: JobState
    """`failed` if the job was refused; of a deleted job, how it ended."""
    step: int = 0
    epoch: int | None = None
    rungs: Sequence[RungFacts] = ()
    """Of `asha`: those that it has reached, in order."""
    at_rung: bool = False
    """Whether it is paused at the last of them, and waits to be promoted."""
    error: str | None = None

    @property
    def is_active(self) -> bool:
        """Whether it waits or runs: it counts for `max_parallel`."""
        return self.state in ACTIVE


ACTIVE = frozenset({JobState.QUEUED, JobState.STARTING, JobState.RUNNING})
"""The states of a trial that waits or runs."""


KnownTrials: TypeAlias = Callable[[int], list[TrialFacts]]
"""Makes the first so many trials of a sweep, by number, of what was read of them. That takes longer than reading it."""


@dataclass(frozen=True)
class NewSweep:
    """A sweep that a caller submits. `visibility`: the default, for a spec that sets none."""

    spec: SweepSpec
    caller: Caller
    visibility: Visibility
    keyed: KeyedRequest | None = None


@dataclass(frozen=True)
class SweepFilter:
    """The sweeps that meet every condition. None and no states mean any."""

    name: str | None = None
    owner: str | None = None
    states: Sequence[SweepState] = ()


@dataclass(frozen=True)
class SweepTerms:
    """What of its spec says when a sweep goes on."""

    parallel: int
    """The largest number of trials that are queued, starting or running at once."""
    max_failed: int | None
    halving: Halving | None


@dataclass(frozen=True)
class DueSweep:
    """A sweep that has not ended, as a controller looks at it. Its spec, which may be large, is not read."""

    id: str
    owner: str
    method: Method
    mode: str
    state: SweepState
    version: int
    """Rises with each change."""
    asked: str | None
    """What its jobs are being asked for, one after another."""
    total: int
    made: int
    """How many trials have been made: the number of the next one."""
    active: int
    """Trials that wait or run."""
    open: int
    """Number of trials that have not ended. Paused ones count."""
    failed: int
