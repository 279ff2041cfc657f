"""Observes one attempt and carries out the actions that `lifecycle` decides on."""

from typing import assert_never

from store.worker.records import AttemptFacts, Claim
from worker.attempts.context import AttemptContext, WorkerContext
from worker.attempts.devices import AttemptDevices
from worker.attempts.following import Following
from worker.attempts.instructions import Instructions
from worker.attempts.intents import IntentReader
from worker.attempts.phases import (
    Action,
    Close,
    Installing,
    Intents,
    Kill,
    MarkRunning,
    Observation,
    Prepare,
    RequestStop,
    ShowWaiting,
    StartAttempt,
    StoreOutput,
    Undrained,
    Unprepared,
)
from worker.attempts.prepare.preparation import NotWanted
from worker.attempts.prepare.setup import Setup
from worker.attempts.waiting import WaitingReasons
from worker.devices.quarantine import DeviceUse
from worker.engines.base import Handle, Waiting
from worker.reaches.reaches import Reaches

_RETRY_S = 1.0
_INSTALLING_S = 0.1


class AttemptExecutor:
    """Executes one attempt.

    Every method raises StaleClaim after the attempt has ended or been rescued, and Unavailable if an instruction ended
    a wait for the database.
    """

    def __init__(self, worker: WorkerContext, claim: Claim, instructions: Instructions) -> None:
        self._attempt = AttemptContext.of(worker, claim, instructions)
        self._in_pool = claim.holder is not None
        self._devices = AttemptDevices(self._attempt.key, worker.health)
        self._intents = IntentReader(self._attempt.records, instructions, longest_grace=worker.max_stop_grace)
        self._setup = Setup(self._attempt, check_wanted=self._check_wanted)
        self._following = Following(self._attempt)
        self._reaches = Reaches(worker.engine, worker.service)
        self._waiting = WaitingReasons(self._attempt.records, number=claim.number)
        self._facts: AttemptFacts | None = None
        """As `begin` read them: what is used of them does not change while the attempt is open."""

    @property
    def device_use(self) -> DeviceUse:
        """The attempt's devices, for the quarantine."""
        return self._devices.use

    def begin(self) -> Observation | None:
        """Reads the attempt, and finds what an earlier daemon started of it. Returns None if it has to poll."""
        self._facts = facts = self._attempt.records.read()
        self._devices.begin(facts.devices, adopted=facts.launcher is not None)
        self._intents.update(facts)
        engine, key, world_size = self._attempt.worker.engine, self._attempt.key, facts.world_size
        if facts.launcher is not None:
            handle = Handle(key, world_size, facts.launcher)
            engine.adopt(handle)
            self._reaches.follow(handle)
            self._following.follow(handle, facts)
            return None
        engine_run = engine.find(key, world_size=world_size, claimed_at=facts.started_at)
        if engine_run is None:
            return Unprepared()
        self._following.launched(engine_run, facts)
        self._reaches.follow(engine_run)
        return None

    def start(self) -> None:
        """Starts the thread that stores what the attempt writes. Raises RuntimeError if the system has none left."""
        self._following.start()

    def close(self) -> None:
        """Ends what this process does for the attempt."""
        self._setup.close()
        self._reaches.close()
        self._following.close()

    def look_for_stray_memory(self) -> None:
        """Asks the driver what ranks hold on each other's devices. The thread of the observation calls it."""
        self._following.look_for_stray_memory()

    def intents(self) -> Intents:
        """Returns what is wanted of the attempt, and begins with what is wanted for reaches into it."""
        intents = self._intents.intents()
        self._reaches.carry_out(self._intents.reaches)
        return intents

    def recheck_intents(self) -> None:
        """Has the next turn read the intents of the job's owner."""
        self._intents.recheck()

    def poll(self) -> Observation:
        """Returns what the engine says of the attempt."""
        return self._following.poll()

    def pause_s(self, observed: Observation | None) -> float:
        """Returns how long to wait before the next turn. `observed`: what the last actions found out."""
        match observed:
            case Unprepared(problem=str(), pause_s=pause_s):
                return pause_s
            case Undrained(failures) if failures:
                return _RETRY_S
            case Installing():
                return _INSTALLING_S
            case None:
                return self._following.pause_s()
            case _:
                return 0.0

    def act(self, action: Action) -> Observation | None:
        """Carries out an action. Returns what it found out, or None: the engine is polled then."""
        match action:
            case Prepare():
                return self._prepare()
            case StartAttempt():
                return self._start()
            case StoreOutput(final=True, completed=completed):
                return self._following.store_rest(completed=completed)
            case StoreOutput():
                self._following.store_some(stacks_requested_at=self._intents.stacks_requested_at)
            case ShowWaiting(waiting):
                self._show_waiting(waiting)
            case MarkRunning():
                self._intents.note_running()
                self._following.mark_running()
            case RequestStop(stop):
                self._following.request_stop(stop)
            case Kill(silent):
                self._kill(silent=silent)
            case Close(report, requested):
                self._setup.close()
                report = self._devices.end(report)  # before the devices are free: they may have to wait in quarantine
                self._following.end(report, requested={requested} if requested is not None else set())
            case _:
                assert_never(action)
        return None

    def _show_waiting(self, waiting: Waiting) -> None:
        if self._in_pool:  # a host starts it within seconds
            self._waiting.show(waiting)

    def _kill(self, *, silent: bool) -> None:
        """In a pool, another daemon may carry the attempt on: nothing is killed that is not surely this one's."""
        if self._in_pool:
            if silent:  # what no row has, the daemon that serves the pool ends
                return
            self._attempt.records.check_owned()
        self._following.kill(silent=silent)

    def _prepare(self) -> Observation:
        assert self._facts is not None
        if self._in_pool:
            self._attempt.records.check_owned()  # the daemons of a pool have one run directory
        observed = self._setup.prepare(self._facts)
        if self._setup.has_log:
            self._following.store_setup_log(self._facts)
        return observed

    def _start(self) -> Observation | None:
        assert self._facts is not None
        announced = self._setup.announce()
        if announced is not None:
            self._following.announced(announced)
        started = self._setup.start(used=self._intents.used)
        if not isinstance(started, Handle):
            if isinstance(started, Unprepared) and started.problem is not None:
                self._show_waiting(Waiting(started.problem))
            return started
        self._following.launched(started, self._facts)
        self._reaches.follow(started)
        if started.note is not None:
            self._attempt.notices.send_once(started.note, level="info")
        return None

    def _check_wanted(self) -> None:
        self._attempt.instructions.turns.note()  # a long step has moved some bytes
        if self._intents.intents() != Intents():
            raise NotWanted
