"""The lifecycle of an attempt, as a table and by properties. No process runs."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
import itertools

from hypothesis import given
from hypothesis import strategies as st
import pytest

from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.states import EndReason
from worker.attempts.lifecycle import (
    MAX_DRAIN_AFTER_CANCEL,
    MAX_DRAIN_AFTER_FORCED_CANCEL,
    MAX_STORE_FAILURES_AFTER_CANCEL,
    Decision,
    decide,
)
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

NOTHING = Intents()
SHORT, LONG = timedelta(seconds=5), timedelta(hours=1)
PREEMPT, IDLE, PAUSE, CANCEL = (
    WantedStop(reason, LONG)
    for reason in (EndReason.PREEMPTED, EndReason.IDLE_TIMEOUT, EndReason.PAUSED, EndReason.CANCELLED)
)
STORE_ALL = StoreOutput(final=True, completed=True)
LEFT = ExitReport(reason=EndReason.PREEMPTED, exited_well=True)
COMPLETED, CRASHED = ExitReport(reason=EndReason.COMPLETED), ExitReport(reason=EndReason.USER_ERROR, rank=1)
CUT = replace(CRASHED, message="user_error; the last of what it wrote is not stored")
GONE = ExitReport(reason=EndReason.WORKER_LOST, message="no process of the attempt runs, and it left no exit report")
WAITING, QUEUED, SOME, ALL = (
    base.Waiting("a node"),
    base.Waiting("Priority", queued=True),
    base.Running(1, 2),
    base.Running(2, 2),
)
ORPHANED, UNKNOWN = base.Running(0, 2, supervised=False), base.Unknown("no answer")


def stopped(reason: EndReason, problem: str = "") -> ExitReport:
    return ExitReport(reason=reason, message="stopped before it started" + problem)


@pytest.mark.parametrize(
    ("phase", "observation", "stop", "next_phase", "actions"),
    [
        (Preparing(), Unprepared(), None, Preparing(), [Prepare()]),
        (Preparing(), Unprepared("disk full"), None, Preparing(), [Prepare()]),
        (Preparing(), Prepared(), None, Starting(), [StartAttempt()]),
        (Preparing(), Failed(CRASHED), None, Closed("ended"), [Close(CRASHED)]),
        (
            Preparing(),
            Unprepared(),
            CANCEL,
            Closed("ended"),
            [Close(stopped(EndReason.CANCELLED), EndReason.CANCELLED)],
        ),
        (
            Preparing(),
            Unprepared("full"),
            PAUSE,
            Closed("ended"),
            [Close(stopped(EndReason.PAUSED, ": full"), EndReason.PAUSED)],
        ),
        (Preparing(), Prepared(), PREEMPT, Closed("ended"), [Close(stopped(EndReason.PREEMPTED), EndReason.PREEMPTED)]),
        # An earlier daemon has started it.
        (Preparing(), ALL, None, RanksUp(), [MarkRunning(), StoreOutput()]),
        (Preparing(), base.Ended(CRASHED), None, Draining(CRASHED), [StoreOutput(final=True)]),
        (Starting(), Unprepared("full"), None, Preparing(), [Prepare()]),
        (Starting(), WAITING, None, Starting(), [ShowWaiting(WAITING), StoreOutput()]),
        (Starting(), QUEUED, None, Starting(), [ShowWaiting(QUEUED), StoreOutput()]),
        (Starting(), SOME, None, Starting(), [StoreOutput()]),
        (Starting(), ALL, None, RanksUp(), [MarkRunning(), StoreOutput()]),
        (Starting(), UNKNOWN, None, Starting(), [StoreOutput()]),
        (
            Starting(),
            WAITING,
            PAUSE,
            Stopping(PAUSE, ran=False),
            [RequestStop(PAUSE), ShowWaiting(WAITING), StoreOutput()],
        ),
        (Starting(), ALL, PAUSE, Stopping(PAUSE, ran=True), [MarkRunning(), RequestStop(PAUSE), StoreOutput()]),
        # The engine is sure that nothing was started: the same attempt is prepared again.
        (Preparing(), base.Absent(), None, Preparing(), [Prepare()]),
        (Starting(), base.Absent(), None, Preparing(), [Prepare()]),
        (
            Starting(),
            base.Absent(),
            CANCEL,
            Closed("ended"),
            [Close(stopped(EndReason.CANCELLED), EndReason.CANCELLED)],
        ),
        (
            Stopping(PAUSE, ran=False),
            base.Absent(),
            None,
            Closed("ended"),
            [Close(stopped(EndReason.PAUSED), EndReason.PAUSED)],
        ),
        (RanksUp(), base.Absent(), None, Draining(GONE), [StoreOutput(final=True)]),
        (Starting(), base.Ended(COMPLETED), None, Draining(COMPLETED), [MarkRunning(), STORE_ALL]),
        (RanksUp(), ALL, None, RanksUp(), [StoreOutput()]),
        (RanksUp(), UNKNOWN, CANCEL, Stopping(CANCEL, ran=True), [RequestStop(CANCEL), StoreOutput()]),
        (RanksUp(), ORPHANED, None, RanksUp(), [StoreOutput(), Kill()]),
        (RanksUp(), base.Ended(COMPLETED), None, Draining(COMPLETED), [STORE_ALL]),
        (RanksUp(), base.Ended(LEFT), None, Draining(LEFT), [STORE_ALL]),
        (Draining(LEFT), Undrained(), None, Draining(LEFT), [STORE_ALL]),
        (RanksUp(), base.Ended(CRASHED), CANCEL, Draining(CRASHED, EndReason.CANCELLED), [StoreOutput(final=True)]),
        (RanksUp(), Failed(CRASHED), None, Closed("ended"), [Kill(), Close(CRASHED)]),
        (Stopping(PAUSE, ran=True), ALL, None, Stopping(PAUSE, ran=True), [RequestStop(PAUSE), StoreOutput()]),
        (
            Stopping(PAUSE, ran=False),
            ALL,
            None,
            Stopping(PAUSE, ran=True),
            [MarkRunning(), RequestStop(PAUSE), StoreOutput()],
        ),
        (Stopping(PAUSE, ran=True), ALL, CANCEL, Stopping(CANCEL, ran=True), [RequestStop(CANCEL), StoreOutput()]),
        (Stopping(CANCEL, ran=True), ALL, PREEMPT, Stopping(CANCEL, ran=True), [RequestStop(CANCEL), StoreOutput()]),
        (Stopping(PAUSE, ran=True), base.Absent(), None, Draining(GONE, EndReason.PAUSED), [StoreOutput(final=True)]),
        (Draining(CRASHED), Undrained(), None, Draining(CRASHED), [StoreOutput(final=True)]),
        (Draining(CRASHED), Undrained(99), PAUSE, Draining(CRASHED), [StoreOutput(final=True)]),
        (
            Draining(CRASHED),
            Undrained(MAX_STORE_FAILURES_AFTER_CANCEL - 1),
            CANCEL,
            Draining(CRASHED),
            [StoreOutput(final=True)],
        ),
        (Draining(CRASHED), Undrained(MAX_STORE_FAILURES_AFTER_CANCEL), CANCEL, Closed("ended"), [Close(CUT)]),
        (Draining(CRASHED), Drained(), None, Closed("ended"), [Close(CRASHED)]),
    ],
)
def test_the_next_phase_and_its_actions(
    phase: Phase, observation: Observation, stop: WantedStop | None, next_phase: Phase, actions: list[Action]
) -> None:
    assert decide(phase, observation, Intents(stop=stop)) == Decision(next_phase, tuple(actions))


FORCED = WantedStop(EndReason.CANCELLED, timedelta(0))


@pytest.mark.parametrize("phase", [Starting(), RanksUp(), Stopping(CANCEL, ran=True), Stopping(PAUSE, ran=False)])
def test_a_forced_cancel_cuts_the_grace_of_a_stop_that_is_under_way(phase: Phase) -> None:
    decision = decide(phase, UNKNOWN, Intents(stop=FORCED, forced=True))
    assert isinstance(decision.phase, Stopping)
    assert decision.phase.stop == FORCED
    assert decision.actions == (RequestStop(FORCED), StoreOutput())


@pytest.mark.parametrize("observation", [Installing(), Prepared(), Unprepared("full")])
def test_a_forced_cancel_starts_nothing(observation: Observation) -> None:
    decision = decide(Preparing(), observation, Intents(stop=FORCED, forced=True))
    assert decision.phase == Closed("ended")
    (close,) = decision.actions
    assert isinstance(close, Close)
    assert (close.report.reason, close.requested) == (EndReason.CANCELLED, EndReason.CANCELLED)


@pytest.mark.parametrize(
    ("intents", "most"),
    [
        (Intents(stop=FORCED, forced=True), MAX_DRAIN_AFTER_FORCED_CANCEL),
        (Intents(stop=FORCED), MAX_DRAIN_AFTER_CANCEL),
        (Intents(stop=CANCEL), MAX_DRAIN_AFTER_CANCEL),
        (Intents(stop=WantedStop(EndReason.TIME_LIMIT, timedelta(0))), MAX_DRAIN_AFTER_CANCEL),
        (Intents(stop=IDLE), MAX_DRAIN_AFTER_CANCEL),
        (Intents(stop=PAUSE), None),
        (NOTHING, None),
    ],
)
def test_the_rest_of_an_output_is_given_up_after_a_while_if_the_job_must_end(
    intents: Intents, most: timedelta | None
) -> None:
    goes_on = Decision(Draining(CRASHED), (StoreOutput(final=True),))
    brief = timedelta.max if most is None else most - timedelta(seconds=1)
    assert decide(Draining(CRASHED), Undrained(lasted=brief), intents) == goes_on
    if most is not None:
        given_up = Decision(Closed("ended"), (Close(CUT),))
        assert decide(Draining(CRASHED), Undrained(lasted=most), intents) == given_up


def test_the_shorter_grace_of_two_stops_counts() -> None:
    urgent = WantedStop(EndReason.PREEMPTED, SHORT)
    decision = decide(Stopping(PAUSE, ran=True), ALL, Intents(stop=urgent))
    assert decision.phase == Stopping(WantedStop(EndReason.PAUSED, SHORT), ran=True)


def test_the_stronger_of_two_stops_counts() -> None:
    late = WantedStop(EndReason.TIME_LIMIT, LONG)
    for weaker, stop in itertools.combinations((PREEMPT, IDLE, PAUSE, late, CANCEL), 2):
        for before, wanted in ((weaker, stop), (stop, weaker)):
            assert decide(Stopping(before, ran=True), ALL, Intents(stop=wanted)).phase == Stopping(stop, ran=True)


def test_the_requested_stop_is_part_of_the_close() -> None:
    for phase, stop in ((RanksUp(), PREEMPT), (Stopping(PAUSE, ran=True), PREEMPT), (Stopping(PAUSE, ran=False), None)):
        ended = decide(phase, base.Ended(CRASHED), Intents(stop=stop)).phase
        assert isinstance(ended, Draining)
        (close,) = decide(ended, Drained(), NOTHING).actions
        assert close == Close(CRASHED, EndReason.PREEMPTED if isinstance(phase, RanksUp) else EndReason.PAUSED)


STOPS = (None, PREEMPT, IDLE, PAUSE, CANCEL, WantedStop(EndReason.PREEMPTED, SHORT))
OBSERVATIONS: tuple[Observation, ...] = (
    Unprepared(),
    Unprepared("disk full"),
    Prepared(),
    Failed(CRASHED),
    WAITING,
    SOME,
    ALL,
    ORPHANED,
    UNKNOWN,
    base.Absent(),
    base.Ended(COMPLETED),
    base.Ended(CRASHED),
    base.Ended(ExitReport(reason=EndReason.PREEMPTED)),
    Undrained(),
    Undrained(MAX_STORE_FAILURES_AFTER_CANCEL),
    Drained(),
)
INTENTS = (*(Intents(stop=stop) for stop in STOPS), Intents(detach=True), Intents(abandon=True))


def following(phase: Phase) -> Iterator[Phase]:
    for observation, intents in itertools.product(OBSERVATIONS, INTENTS):
        yield decide(phase, observation, intents).phase


def reachable(start: Phase) -> set[Phase]:
    found, pending = {start}, [start]
    while pending:
        for phase in following(pending.pop()):
            if phase not in found:
                found.add(phase)
                pending.append(phase)
    return found


def test_every_phase_is_reachable_and_each_can_be_closed_in_every_way() -> None:
    phases = reachable(Preparing())
    assert {type(phase) for phase in phases} == {Preparing, Starting, RanksUp, Stopping, Draining, Closed}
    for phase in phases - {Closed("ended"), Closed("detached"), Closed("abandoned")}:
        assert {Closed("ended"), Closed("detached"), Closed("abandoned")} <= reachable(phase)


def test_a_closed_attempt_stays_closed_without_actions() -> None:
    for how in (Closed("ended"), Closed("detached"), Closed("abandoned")):
        for observation, intents in itertools.product(OBSERVATIONS, INTENTS):
            assert decide(how, observation, intents) == Decision(how)


def test_a_detached_attempt_goes_on_and_an_abandoned_one_is_killed_without_a_write() -> None:
    for phase, observation in itertools.product(reachable(Preparing()), OBSERVATIONS):
        if isinstance(phase, Closed):
            continue
        assert decide(phase, observation, Intents(detach=True)) == Decision(Closed("detached"))
        both = Intents(stop=CANCEL, detach=True, abandon=True)
        assert decide(phase, observation, both) == Decision(Closed("abandoned"), (Kill(silent=True),))


def test_an_unknown_observation_ends_nothing() -> None:
    for phase, stop in itertools.product(reachable(Preparing()), STOPS):
        if isinstance(phase, Starting | RanksUp | Stopping):
            decision = decide(phase, UNKNOWN, Intents(stop=stop))
            assert isinstance(decision.phase, Starting | RanksUp | Stopping)
            assert not {Kill, Close} & {type(action) for action in decision.actions}


WALK = st.lists(st.tuples(st.sampled_from(OBSERVATIONS), st.sampled_from(INTENTS[: len(STOPS)])), max_size=40)


@given(WALK)
def test_a_stop_only_grows_stronger(walk: list[tuple[Observation, Intents]]) -> None:
    phase: Phase = Preparing()
    requested: WantedStop | None = None
    for observation, intents in walk:
        decision = decide(phase, observation, intents)
        for action in decision.actions:
            if isinstance(action, RequestStop):
                assert action.stop == action.stop.combined(requested)
                requested = action.stop
        phase = decision.phase


@given(WALK)
def test_an_attempt_is_closed_once_and_after_the_last_store(walk: list[tuple[Observation, Intents]]) -> None:
    phase: Phase = Preparing()
    actions: list[Action] = []
    for observation, intents in walk:
        decision = decide(phase, observation, intents)
        actions += decision.actions
        phase = decision.phase
    closes = [index for index, action in enumerate(actions) if isinstance(action, Close)]
    assert closes in ([], [len(actions) - 1])
    assert bool(closes) == (phase == Closed("ended"))
