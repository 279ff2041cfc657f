"""What is known of sweeps and of their trials."""

from collections.abc import Sequence
from dataclasses import dataclass

from torchyard.contract.job import JobState
from torchyard.contract.sweeps import Point


@dataclass(frozen=True)
class RungFacts:
    """What a trial of `asha` had reached when it stopped at a rung."""

    at: int
    """Epochs or steps, as `halving.unit` says."""
    value: float | None
    """The best value until then; None if it had none, or NaN."""


@dataclass(frozen=True, kw_only=True)
class TrialFacts:
    """A trial whose row is there. The numbers of a sweep's trials have no gaps."""

    number: int
    point: Point
    job_id: str | None
    """None if the job was deleted, or was refused when it was to be made."""
    state: JobState
    """`failed` if the job was refused; of a deleted job, how it ended."""
    value: float | None
    """The best value of the sweep's metric so far; None if there is none, NaN if it measured nothing else."""
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
        return self.state in {JobState.QUEUED, JobState.STARTING, JobState.RUNNING}
