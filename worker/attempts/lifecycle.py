"""The life of one attempt on its worker, as a pure function: what it does next, by what was seen and what is wanted.

    preparing ⇄ starting ──▶ running ──▶ draining ──▶ closed
                    └──▶ stopping ◀┘─────────▲
                             └───────────────┘

Each phase can also close early (the attempt cannot be prepared, the worker failed), detach or be abandoned.
*Detach*: the daemon leaves and the processes go on, for a later daemon to adopt. *Abandon*: the fence is lost, so the
processes are killed and nothing is written.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from torchyard.contract.job import EndReason
from torchyard.contract.records import ExitReport
from worker.engines import base

TRIES_ONCE_CANCELLED = 5
"""How often in a row the host may refuse to store what a cancelled attempt left, before the rest is given up."""

_STRENGTH = {EndReason.PREEMPTED: 0, EndReason.PAUSED: 1, EndReason.CANCELLED: 3}
_OTHER = 2  # the supervisor's own reasons, such as the time limit


@dataclass(frozen=True)
class Stop:
    """A wish that the attempt ends, and how long it may take to save."""

    reason: EndReason
    grace: timedelta

    def joined(self, other: "Stop | None") -> "Stop":
        """The stronger reason (preempt < pause < cancel) and the shorter grace of both."""
        if other is None:
            return self
        reason = max(other.reason, self.reason, key=lambda item: _STRENGTH.get(item, _OTHER))
        return Stop(reason, min(self.grace, other.grace))


@dataclass(frozen=True)
class Intents:
    """What is wanted of the attempt now, by its owner and by the daemon."""

    stop: Stop | None = None
    detach: bool = False
    abandon: bool = False


@dataclass(frozen=True)
class Preparing:
    """A phase: its run directory is written. Nothing runs."""


@dataclass(frozen=True)
class Starting:
    """A phase: the engine was told to start it. Not every rank has come up."""


@dataclass(frozen=True)
class Running:
    """A phase: every rank has come up."""


@dataclass(frozen=True)
class Stopping:
    """A phase: it was asked to stop."""

    stop: Stop
    ran: bool
    """Whether every rank had come up."""


@dataclass(frozen=True)
class Draining:
    """A phase: nothing of it runs. What it wrote is being stored."""

    report: ExitReport
    asked: EndReason | None = None
    """The stop that it was asked for."""


@dataclass(frozen=True)
class Closed:
    """The last phase: the daemon has nothing more to do for it."""

    how: Literal["ended", "detached", "abandoned"]


Phase = Preparing | Starting | Running | Stopping | Draining | Closed


@dataclass(frozen=True)
class Unprepared:
    """Seen: there was no try yet, or the host cannot do it now and `trouble` says why."""

    trouble: str | None = None


@dataclass(frozen=True)
class Prepared:
    """Seen: its run directory is whole."""


@dataclass(frozen=True)
class Undrained:
    """Seen: there is more to store, or the host refused to store it `refusals` times in a row."""

    refusals: int = 0


@dataclass(frozen=True)
class Drained:
    """Seen: all that it wrote is stored."""


@dataclass(frozen=True)
class Failed:
    """Seen: it cannot go on, whatever its phase. It cannot be prepared, or the worker met an error of its own."""

    report: ExitReport


Observation = Unprepared | Prepared | base.Observation | Undrained | Drained | Failed


@dataclass(frozen=True)
class Prepare:
    """To do: write the run directory. Seen next: `Prepared`, `Unprepared` or `Failed`."""


@dataclass(frozen=True)
class Start:
    """To do: have the engine start it, and store its handle. Seen next: the engine's, `Unprepared` or `Failed`."""


@dataclass(frozen=True)
class MarkRunning:
    """To do: store with the next `Store` or `Close` that every rank has come up. May be repeated."""


@dataclass(frozen=True)
class Store:
    """To do: store some of what it wrote. `final`: nothing writes any more; seen next: `Undrained` or `Drained`."""

    final: bool = False


@dataclass(frozen=True)
class RequestStop:
    """To do: ask it to stop. May be repeated."""

    stop: Stop


@dataclass(frozen=True)
class Kill:
    """To do: end whatever runs of it. `silent`: and write nothing."""

    silent: bool = False


@dataclass(frozen=True)
class Close:
    """To do: the last transaction, with its end, its devices and the job's next state."""

    report: ExitReport
    asked: EndReason | None = None
    """The stop that it was asked for: an end as another stop is not believed."""


Action = Prepare | Start | MarkRunning | Store | RequestStop | Kill | Close


@dataclass(frozen=True)
class Decision:
    phase: Phase
    actions: tuple[Action, ...] = ()


def decide(phase: Phase, seen: Observation, intents: Intents) -> Decision:
    """The next phase, and the actions that lead there in their order. Where one of them fails, the phase stays."""
    if isinstance(phase, Closed):
        return Decision(phase)
    if intents.abandon:
        return Decision(Closed("abandoned"), (Kill(silent=True),))
    if intents.detach:
        return Decision(Closed("detached"))
    if isinstance(seen, Failed):
        kill = () if isinstance(phase, Preparing) else (Kill(),)
        return Decision(Closed("ended"), (*kill, Close(seen.report)))
    return _proceed(phase, seen, intents.stop)


def _proceed(
    phase: Preparing | Starting | Running | Stopping | Draining, seen: Observation, wanted: Stop | None
) -> Decision:
    if isinstance(phase, Draining):
        return _drain(phase, seen, wanted)
    if isinstance(phase, Preparing) and isinstance(seen, base.Observation):
        phase = Starting()  # an earlier daemon has started it
    if isinstance(phase, Preparing) or (isinstance(phase, Starting) and isinstance(seen, Unprepared)):
        return _prepare(seen, wanted)
    if isinstance(seen, base.Ended | base.Absent):
        return _leave(phase, seen, wanted)
    return _go_on(phase, seen, wanted)


def _prepare(seen: Observation, wanted: Stop | None) -> Decision:
    trouble = seen.trouble if isinstance(seen, Unprepared) else None
    if wanted is not None:
        message = "stopped before it started" + (f": {trouble}" if trouble else "")
        report = ExitReport(reason=wanted.reason, message=message)
        return Decision(Closed("ended"), (Close(report, wanted.reason),))
    if isinstance(seen, Prepared):
        return Decision(Starting(), (Start(),))
    return Decision(Preparing(), (Prepare(),))


def _go_on(phase: Starting | Running | Stopping, seen: Observation, wanted: Stop | None) -> Decision:
    """It is about to run, runs, or nobody can tell."""
    actions: list[Action] = [Store()]
    ran = _ran(phase)
    if isinstance(seen, base.Running):
        if not seen.supervised:
            actions.append(Kill())
        if not ran and seen.ranks >= seen.of:
            ran = True
            actions.insert(0, MarkRunning())
    stop = _asked(phase, wanted)
    if stop is not None:
        return Decision(Stopping(stop, ran), (*actions, RequestStop(stop)))
    return Decision(Running() if ran else Starting(), tuple(actions))


def _leave(phase: Starting | Running | Stopping, seen: base.Ended | base.Absent, wanted: Stop | None) -> Decision:
    if isinstance(seen, base.Ended):
        report = seen.report
    else:
        report = ExitReport(reason=EndReason.WORKER_LOST, message="nothing of the attempt runs, and it left no word")
    # A job succeeds from `running` alone, also where its ranks were too fast to be seen.
    mark = (MarkRunning(),) if report.reason is EndReason.COMPLETED and not _ran(phase) else ()
    stop = _asked(phase, wanted)
    return Decision(Draining(report, stop.reason if stop is not None else None), (*mark, Store(final=True)))


def _drain(phase: Draining, seen: Observation, wanted: Stop | None) -> Decision:
    cancelled = wanted is not None and wanted.reason is EndReason.CANCELLED
    given_up = isinstance(seen, Undrained) and cancelled and seen.refusals >= TRIES_ONCE_CANCELLED
    if isinstance(seen, Drained) or given_up:
        return Decision(Closed("ended"), (Close(phase.report, phase.asked),))
    return Decision(phase, (Store(final=True),))


def _ran(phase: Starting | Running | Stopping) -> bool:
    return phase.ran if isinstance(phase, Stopping) else isinstance(phase, Running)


def _asked(phase: Starting | Running | Stopping, wanted: Stop | None) -> Stop | None:
    """A stop only grows stronger: a wish that was taken back stays asked."""
    before = phase.stop if isinstance(phase, Stopping) else None
    return wanted.joined(before) if wanted is not None else before
