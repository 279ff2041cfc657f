"""The lifecycle of one attempt on its worker, as a pure function of its phase, an observation and the intents.

    preparing ⇄ starting ──▶ ranks up ──▶ draining ──▶ closed
                    └──▶ stopping ◀┘──────────▲
                             └────────────────┘

From each phase the attempt can also be closed early (it cannot be prepared, or the worker failed), be detached or be
abandoned. *Detach*: the daemon leaves, and the processes go on until a later daemon adopts them. *Abandon*: the fence
is lost, so the processes are killed and nothing is written.
"""

from dataclasses import dataclass, replace
from datetime import timedelta

from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.states import EndReason
from worker.attempts.phases import (
    Action,
    Close,
    Closed,
    Drained,
    Draining,
    Failed,
    Installing,
    Intents,
    Kill,
    MarkRunning,
    Observation,
    Phase,
    Prepare,
    Prepared,
    Preparing,
    RanksUp,
    RequestStop,
    ShowWaiting,
    StartAttempt,
    Starting,
    Stopping,
    StoreOutput,
    Undrained,
    Unprepared,
    WantedStop,
)
from worker.engines import base

MAX_STORE_FAILURES_AFTER_CANCEL = 5
"""Failures in a row to store the output of a cancelled attempt, until the rest is given up."""
MAX_DRAIN_AFTER_FORCED_CANCEL = timedelta(seconds=30)
"""How long to store the rest of the output if the cancel is forced."""
MAX_DRAIN_AFTER_CANCEL = timedelta(hours=1)
"""How long to store it if the job is cancelled, over its time limit, or stopped as idle."""


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
    phase: Preparing | Starting | RanksUp | Stopping, observation: Observation, wanted: WantedStop | None
) -> Decision:
    if isinstance(phase, Preparing) and isinstance(observation, base.Observation):
        phase = Starting()  # an earlier daemon has started it
    if isinstance(phase, Preparing) or (not _ran(phase) and isinstance(observation, Unprepared | base.Absent)):
        return _prepare(observation, wanted if isinstance(phase, Preparing) else _strongest_stop(phase, wanted))
    if isinstance(observation, base.Ended | base.Absent):
        return _start_draining(phase, observation, wanted)
    return _follow(phase, observation, wanted)


def _prepare(observation: Observation, wanted: WantedStop | None) -> Decision:
    problem = observation.problem if isinstance(observation, Unprepared) else None
    if isinstance(observation, Installing):
        problem = "its packages were being installed"
    if wanted is not None:
        message = "stopped before it started" + (f": {problem}" if problem else "")
        report = ExitReport(reason=wanted.reason, message=message)
        return Decision(Closed("ended"), (Close(report, wanted.reason),))
    if isinstance(observation, Prepared):
        return Decision(Starting(), (StartAttempt(),))
    return Decision(Preparing(), (Prepare(),))


def _follow(phase: Starting | RanksUp | Stopping, observation: Observation, wanted: WantedStop | None) -> Decision:
    """Decides for an attempt that is about to run, that runs, or of which the engine cannot tell."""
    stop, ran = _strongest_stop(phase, wanted), _ran(phase)
    # The stop comes first: to store may take long.
    actions: list[Action] = [StoreOutput()] if stop is None else [RequestStop(stop), StoreOutput()]
    if isinstance(observation, base.Waiting) and not ran:
        actions.insert(-1, ShowWaiting(observation))
    if isinstance(observation, base.Running):
        if not observation.supervised:
            actions.append(Kill())
        if not ran and observation.ranks >= observation.world_size:
            ran = True
            actions.insert(0, MarkRunning())
    if stop is not None:
        return Decision(Stopping(stop, ran), tuple(actions))
    return Decision(RanksUp() if ran else Starting(), tuple(actions))


def _start_draining(
    phase: Starting | RanksUp | Stopping, observation: base.Ended | base.Absent, wanted: WantedStop | None
) -> Decision:
    if isinstance(observation, base.Ended):
        report = observation.report
    else:
        message = "no process of the attempt runs, and it left no exit report"
        report = ExitReport(reason=EndReason.WORKER_LOST, message=message)
    # A job can succeed only from `running`, also if its ranks ended before anybody saw them.
    mark = (MarkRunning(),) if report.reason is EndReason.COMPLETED and not _ran(phase) else ()
    stop = _strongest_stop(phase, wanted)
    return Decision(Draining(report, stop.reason if stop is not None else None), (*mark, _store_rest(report)))


def _drain(phase: Draining, observation: Observation, intents: Intents) -> Decision:
    report = phase.report
    if isinstance(observation, Undrained) and _gives_up(observation, intents):
        report = replace(report, message=f"{report.message or report.reason}; the last of what it wrote is not stored")
    elif not isinstance(observation, Drained):
        return Decision(phase, (_store_rest(report),))
    return Decision(Closed("ended"), (Close(report, phase.requested),))


def _store_rest(report: ExitReport) -> StoreOutput:
    return StoreOutput(final=True, completed=report.reason is EndReason.COMPLETED or report.exited_well)


def _gives_up(observation: Undrained, intents: Intents) -> bool:
    reason = intents.stop.reason if intents.stop is not None else None
    if reason is EndReason.CANCELLED and observation.failures >= MAX_STORE_FAILURES_AFTER_CANCEL:
        return True
    if reason not in {EndReason.CANCELLED, EndReason.TIME_LIMIT, EndReason.IDLE_TIMEOUT}:
        return False
    return observation.lasted >= (MAX_DRAIN_AFTER_FORCED_CANCEL if intents.forced else MAX_DRAIN_AFTER_CANCEL)


def _ran(phase: Starting | RanksUp | Stopping) -> bool:
    return phase.ran if isinstance(phase, Stopping) else isinstance(phase, RanksUp)


def _strongest_stop(phase: Starting | RanksUp | Stopping, wanted: WantedStop | None) -> WantedStop | None:
    """Returns the stop to ask for. It only grows stronger: a stop that was asked for is not taken back."""
    before = phase.stop if isinstance(phase, Stopping) else None
    return wanted.combined(before) if wanted is not None else before
