"""Carries one attempt to its end in a thread of its own: it observes, lets `lifecycle` decide, and acts.

A further thread, `reading`, stores what the attempt writes.
"""

from collections.abc import Sequence
import logging
import threading

from store.worker.records import Claim
from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.errors import StaleClaim, Unavailable
from torchyard.contract.states import EndReason
from worker.attempts.context import WorkerContext
from worker.attempts.executor import AttemptExecutor
from worker.attempts.instructions import Instructions
from worker.attempts.lifecycle import decide
from worker.attempts.phases import Close, Closed, Failed, Observation, Phase, Preparing, Unprepared
from worker.devices.quarantine import DeviceUse
from worker.watch import Turns

logger = logging.getLogger(__name__)


class Runner:
    """Runs one attempt until it is closed."""

    def __init__(self, context: WorkerContext, claim: Claim) -> None:
        self.claim = claim
        self.instructions = Instructions(f"attempt {claim.number} of {claim.job_id}")
        self.done = False
        self.lost = False
        """Whether it was given up, as it has made no turn for minutes: its lease is not renewed."""
        self.ending = False
        """Whether the last transaction of the attempt was begun."""
        self._phase: Phase = Preparing()
        self._begun = False
        self._observed: Observation | None = None
        """What the last actions found out. None: the engine is polled."""
        self._attempt_ended = context.attempt_ended
        self._executor = AttemptExecutor(context, claim, self.instructions)
        self._name = f"{claim.job_id}/{claim.number}"
        self._thread: threading.Thread | None = None

    @property
    def device_use(self) -> DeviceUse:
        """The attempt's devices, for the quarantine."""
        return self._executor.device_use

    @property
    def turns(self) -> Sequence[Turns]:
        """What to watch of its threads."""
        return self.instructions.turns, self.instructions.reading_turns

    def start(self) -> None:
        """Starts its threads. Raises RuntimeError if the system has none left; it may be called again then."""
        self._executor.start()
        # Since Python 3.13 a thread that failed to start cannot be started again.
        thread = threading.Thread(target=self._main, name=self._name, daemon=True)
        thread.start()
        self._thread = thread

    def look_for_stray_memory(self) -> None:
        """Asks the driver what ranks hold on each other's devices. The thread of the observation calls it."""
        self._executor.look_for_stray_memory()

    def give_up(self, why: str) -> None:
        """Ends the attempt in this thread, instead of `start`: nothing of it runs yet. It costs no restart."""
        self._main(Failed(ExitReport(reason=EndReason.WORKER_LOST, message=why)))

    def join(self, timeout: float) -> None:
        """Waits for the thread, if it was started."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _main(self, failure: Failed | None = None) -> None:
        try:
            self._run(failure)
        except Exception:
            logger.exception("%s: the runner failed; the attempt waits until its lease expires", self._name)
        finally:
            self._executor.close()
            self.done = True
            self._attempt_ended.set()

    def _run(self, failure: Failed | None) -> None:
        while not isinstance(self._phase, Closed):
            self.instructions.turns.note()
            try:
                self._take_turn(self._observe(failure))
            except StaleClaim as stale:
                logger.warning("%s: %s; stopping its processes", self._name, stale.message)
                self.instructions.request_abandon()
            except Exception as error:
                if isinstance(error, Unavailable) and self.instructions.leaving.is_set():
                    continue  # an instruction ended a wait: the next turn follows it
                if failure is not None:
                    raise
                logger.error("%s: the attempt cannot continue", self._name, exc_info=error)
                message = f"the worker failed: {type(error).__name__}: {error}"
                failure = Failed(ExitReport(reason=EndReason.WORKER_LOST, message=message))
            else:
                self._wait()

    def _observe(self, failure: Failed | None) -> Observation:
        if self.instructions.leaving.is_set():
            return Unprepared()  # the decision no longer depends on it
        if failure is not None:
            return failure
        if not self._begun:
            self._observed = self._executor.begin()
            self._begun = True
        observed, self._observed = self._observed, None
        return observed if observed is not None else self._executor.poll()

    def _take_turn(self, observation: Observation) -> None:
        """Carries out one decision. If an action fails, the phase stays, and the actions may be repeated."""
        decision = decide(self._phase, observation, self._executor.intents())
        for action in decision.actions:
            self.ending = isinstance(action, Close)
            act = self._executor.act(action)
            if act is not None:
                self._observed = act
        self._phase = decision.phase

    def _wait(self) -> None:
        if not isinstance(self._phase, Closed) and self.instructions.changed.wait(
            self._executor.pause_s(self._observed)
        ):
            self.instructions.changed.clear()
            if self.instructions.recheck:
                self.instructions.recheck = False
                self._executor.recheck_intents()
