"""The lifecycle of one attempt on its worker, as a pure function of its phase, an observation and the intents.

    preparing ⇄ starting ──▶ running ──▶ draining ──▶ closed
                    └──▶ stopping ◀┘─────────▲
                             └───────────────┘

From each phase the attempt can also be closed early (it cannot be prepared, or the worker failed), be detached or be
abandoned. *Detach*: the daemon leaves, and the processes go on until a later daemon adopts them. *Abandon*: the fence
is lost, so the processes are killed and nothing is written.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal

from torchyard.contract.job import EndReason
from torchyard.contract.records import ExitReport
from worker.engines import base

MAX_STORE_FAILURES_AFTER_CANCEL = 5
"""Failures in a row to store the output of a cancelled attempt, until the rest is given up."""
MAX_DRAIN_AFTER_FORCED_CANCEL = timedelta(seconds=30)
"""How long to store the rest of the output if the cancel is forced."""
MAX_DRAIN_AFTER_CANCEL = timedelta(hours=1)
"""How long to store it if the job is cancelled or over its time limit."""

_STRENGTH = {EndReason.PREEMPTED: 0, EndReason.PAUSED: 1, EndReason.CANCELLED: 3}
_STRENGTH_OF_OTHERS = 2  # the supervisor's own reasons, such as the time limit


@dataclass(frozen=True)
class Stop:
    """A request that the attempt ends, and how long it may take to save a checkpoint."""

    reason: EndReason
    grace: timedelta

    def combined(self, other: "Stop | None") -> "Stop":
        """Returns a stop with the stronger reason (preempt < pause < cancel) and the shorter grace of both."""
        if other is None:
            return self
        reason = max(other.reason, self.reason, key=lambda item: _STRENGTH.get(item, _STRENGTH_OF_OTHERS))
        return Stop(reason, min(self.grace, other.grace))


@dataclass(frozen=True)
class Intents:
    """What the job's owner and the daemon want of the attempt now."""

    stop: Stop | None = None
    forced: bool = False
    """Whether the stop is a cancel that waits for nothing."""
    detach: bool = False
    abandon: bool = False


@dataclass(frozen=True)
class Preparing:
    """A phase: the run directory is being written. No process runs."""


@dataclass(frozen=True)
class Starting:
    """A phase: the engine was told to start the attempt, and some ranks have not come up yet."""


@dataclass(frozen=True)
class Running:
    """A phase: every rank has come up."""


@dataclass(frozen=True)
class Stopping:
    """A phase: the attempt was asked to stop."""

    stop: Stop
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


Phase = Preparing | Starting | Running | Stopping | Draining | Closed


@dataclass(frozen=True)
class Unprepared:
    """An observation: nothing was tried yet, or the host cannot prepare the attempt now and `problem` says why."""

    problem: str | None = None


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
class Start:
    """An action: have the engine start the attempt, and store its handle.

    The next observation is the engine's, `Unprepared` or `Failed`.
    """


@dataclass(frozen=True)
class MarkRunning:
    """An action: the next `Store` or `Close` also stores that every rank has come up. May be repeated."""


@dataclass(frozen=True)
class Store:
    """An action: store some of what the attempt wrote.

    `final`: all processes have ended; the next observation is `Undrained` or `Drained`.
    """

    final: bool = False


@dataclass(frozen=True)
class RequestStop:
    """An action: ask the attempt to stop. May be repeated."""

    stop: Stop


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


Action = Prepare | Start | MarkRunning | Store | RequestStop | Kill | Close


@dataclass(frozen=True)
class Decision:
    """The next phase, and the actions to carry out in this order."""

    phase: Phase
    actions: tuple[Action, ...] = ()


def decide(phase: Phase, observation: Observation, intents: Intents) -> Decision:
    """Returns the next phase and the actions that lead to it. If an action fails, the caller keeps the phase."""
    if isinstance(phase, Closed):
        return Decision(phase)
    if intents.abandon:
        return Decision(Closed("abandoned"), (Kill(silent=True),))
    if intents.detach:
        return Decision(Closed("detached"))
    if isinstance(observation, Failed):
        kill = () if isinstance(phase, Preparing) else (Kill(),)
        return Decision(Closed("ended"), (*kill, Close(observation.report)))
    if isinstance(phase, Draining):
        return _drain(phase, observation, intents)
    return _decide_undrained(phase, observation, intents.stop)


def _decide_undrained(
    phase: Preparing | Starting | Running | Stopping, observation: Observation, wanted: Stop | None
) -> Decision:
    if isinstance(phase, Preparing) and isinstance(observation, base.Observation):
        phase = Starting()  # an earlier daemon has started it
    if isinstance(phase, Preparing) or (isinstance(phase, Starting) and isinstance(observation, Unprepared)):
        return _prepare(observation, wanted)
    if isinstance(observation, base.Ended | base.Absent):
        return _start_draining(phase, observation, wanted)
    return _follow(phase, observation, wanted)


def _prepare(observation: Observation, wanted: Stop | None) -> Decision:
    problem = observation.problem if isinstance(observation, Unprepared) else None
    if isinstance(observation, Installing):
        problem = "its packages were being installed"
    if wanted is not None:
        message = "stopped before it started" + (f": {problem}" if problem else "")
        report = ExitReport(reason=wanted.reason, message=message)
        return Decision(Closed("ended"), (Close(report, wanted.reason),))
    if isinstance(observation, Prepared):
        return Decision(Starting(), (Start(),))
    return Decision(Preparing(), (Prepare(),))


def _follow(phase: Starting | Running | Stopping, observation: Observation, wanted: Stop | None) -> Decision:
    """Decides for an attempt that is about to run, that runs, or of which the engine cannot tell."""
    stop, ran = _strongest_stop(phase, wanted), _ran(phase)
    # The stop comes first: to store may take long.
    actions: list[Action] = [Store()] if stop is None else [RequestStop(stop), Store()]
    if isinstance(observation, base.Running):
        if not observation.supervised:
            actions.append(Kill())
        if not ran and observation.ranks >= observation.world_size:
            ran = True
            actions.insert(0, MarkRunning())
    if stop is not None:
        return Decision(Stopping(stop, ran), tuple(actions))
    return Decision(Running() if ran else Starting(), tuple(actions))


def _start_draining(
    phase: Starting | Running | Stopping, observation: base.Ended | base.Absent, wanted: Stop | None
) -> Decision:
    if isinstance(observation, base.Ended):
        report = observation.report
    else:
        message = "no process of the attempt runs, and it left no exit report"
        report = ExitReport(reason=EndReason.WORKER_LOST, message=message)
    # A job can succeed only from `running`, also if its ranks ended before anybody saw them.
    mark = (MarkRunning(),) if report.reason is EndReason.COMPLETED and not _ran(phase) else ()
    stop = _strongest_stop(phase, wanted)
    return Decision(Draining(report, stop.reason if stop is not None else None), (*mark, Store(final=True)))


def _drain(phase: Draining, observation: Observation, intents: Intents) -> Decision:
    report = phase.report
    if isinstance(observation, Undrained) and _gives_up(observation, intents):
        report = replace(report, message=f"{report.message or report.reason}; the last of what it wrote is not stored")
    elif not isinstance(observation, Drained):
        return Decision(phase, (Store(final=True),))
    return Decision(Closed("ended"), (Close(report, phase.requested),))


def _gives_up(observation: Undrained, intents: Intents) -> bool:
    reason = intents.stop.reason if intents.stop is not None else None
    if reason is EndReason.CANCELLED and observation.failures >= MAX_STORE_FAILURES_AFTER_CANCEL:
        return True
    if reason not in {EndReason.CANCELLED, EndReason.TIME_LIMIT}:
        return False
    return observation.lasted >= (MAX_DRAIN_AFTER_FORCED_CANCEL if intents.forced else MAX_DRAIN_AFTER_CANCEL)


def _ran(phase: Starting | Running | Stopping) -> bool:
    return phase.ran if isinstance(phase, Stopping) else isinstance(phase, Running)


def _strongest_stop(phase: Starting | Running | Stopping, wanted: Stop | None) -> Stop | None:
    """Returns the stop to ask for. It only grows stronger: a stop that was asked for is not taken back."""
    before = phase.stop if isinstance(phase, Stopping) else None
    return wanted.combined(before) if wanted is not None else before
