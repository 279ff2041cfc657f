"""The phases of one attempt, and what `lifecycle` decides by and decides on: observations, intents and actions."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.states import EndReason
from worker.engines import base


@dataclass(frozen=True)
class WantedStop:
    """A request that the attempt ends, and how long it may take to save a checkpoint."""

    reason: EndReason
    grace: timedelta

    def combined(self, other: "WantedStop | None") -> "WantedStop":
        """Returns a stop with the stronger reason and the shorter grace of both."""
        if other is None:
            return self
        return WantedStop(base.stronger(other.reason, self.reason), min(self.grace, other.grace))


@dataclass(frozen=True)
class Intents:
    """What the job's owner and the daemon want of the attempt now."""

    stop: WantedStop | None = None
    forced: bool = False
    """Whether the stop is a cancel that waits for nothing."""
    detach: bool = False
    abandon: bool = False


@dataclass(frozen=True)
class Preparing:
    """A phase: the run directory is being written. No process runs."""


@dataclass(frozen=True)
class Starting:
    """A phase: the engine was asked to start the attempt, and some ranks have not come up yet."""


@dataclass(frozen=True)
class RanksUp:
    """A phase: every rank has come up."""


@dataclass(frozen=True)
class Stopping:
    """A phase: the attempt was asked to stop."""

    stop: WantedStop
    ran: bool
    """Whether every rank had come up."""


@dataclass(frozen=True)
class Draining:
    """A phase: all processes have ended. What the attempt wrote is being stored."""

    report: ExitReport
    requested: EndReason | None = None
    """The stop that the attempt was asked for."""


@dataclass(frozen=True)
class Closed:
    """The last phase: the daemon does nothing more for the attempt."""

    how: Literal["ended", "detached", "abandoned"]


Phase = Preparing | Starting | RanksUp | Stopping | Draining | Closed


@dataclass(frozen=True)
class Unprepared:
    """An observation: nothing was tried yet, or the attempt cannot be prepared or started now: `problem` says why."""

    problem: str | None = None
    pause_s: float = 1.0
    """How long to wait before the next try, if there was a problem."""


@dataclass(frozen=True)
class Installing:
    """An observation: the attempt's own packages are being installed. `Prepare` continues."""


@dataclass(frozen=True)
class Prepared:
    """An observation: the run directory is complete."""


@dataclass(frozen=True)
class Undrained:
    """An observation: there is more to store. The last `failures` tries to store it failed."""

    failures: int = 0
    lasted: timedelta = timedelta(0)
    """Since the first try after the end of all processes."""


@dataclass(frozen=True)
class Drained:
    """An observation: all that the attempt wrote is stored."""


@dataclass(frozen=True)
class Failed:
    """An observation in any phase: the attempt cannot be prepared, or the worker met an error of its own."""

    report: ExitReport


Observation = Unprepared | Installing | Prepared | base.Observation | Undrained | Drained | Failed


@dataclass(frozen=True)
class Prepare:
    """An action: write the run directory, and install the attempt's own packages for a while.

    The next observation is `Prepared`, `Installing`, `Unprepared` or `Failed`.
    """


@dataclass(frozen=True)
class StartAttempt:
    """An action: have the engine start the attempt, and store its handle: before, where the engine announces one.

    The next observation is the engine's, `Unprepared` or `Failed`.
    """


@dataclass(frozen=True)
class ShowWaiting:
    """An action: tell the job's owner why no rank runs yet. May be repeated."""

    waiting: base.Waiting


@dataclass(frozen=True)
class MarkRunning:
    """An action: the next `StoreOutput` or `Close` also stores that every rank has come up. May be repeated."""


@dataclass(frozen=True)
class StoreOutput:
    """An action: store some of what the attempt wrote.

    `final`: all processes have ended; the next observation is `Undrained` or `Drained`.
    """

    final: bool = False
    completed: bool = False
    """Whether they have exited with 0, if `final`."""


@dataclass(frozen=True)
class RequestStop:
    """An action: ask the attempt to stop. May be repeated."""

    stop: WantedStop


@dataclass(frozen=True)
class Kill:
    """An action: end all processes of the attempt. `silent`: write nothing."""

    silent: bool = False


@dataclass(frozen=True)
class Close:
    """An action: the last transaction, which ends the attempt, frees its devices and sets the job's next state."""

    report: ExitReport
    requested: EndReason | None = None
    """The stop that the attempt was asked for. A report that names another stop is not believed."""


Action = Prepare | StartAttempt | ShowWaiting | MarkRunning | StoreOutput | RequestStop | Kill | Close
