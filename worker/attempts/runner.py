"""One attempt of this worker, in a thread of its own: it observes, lets `lifecycle` decide, and acts."""

import contextlib
import logging
import threading

from store.rows.attempts import Claim
from torchyard.contract.errors import StaleClaim, Unavailable
from torchyard.contract.job import EndReason
from torchyard.contract.records import ExitReport
from worker.attempts.effects import Effects, Host
from worker.attempts.lifecycle import Closed, Failed, Observation, Phase, Preparing, Unprepared, decide
from worker.attempts.orders import Orders
from worker.devices.quarantine import Use

logger = logging.getLogger(__name__)


class Runner:
    """Works until the attempt is closed."""

    def __init__(self, host: Host, claim: Claim) -> None:
        self.claim = claim
        self.orders = Orders()
        self.done = False
        self._phase: Phase = Preparing()
        self._begun = False
        self._ended = host.ended
        self._effects = Effects(host, claim, self.orders)
        self._thread = threading.Thread(target=self._main, name=f"{claim.job_id}/{claim.number}", daemon=True)

    @property
    def use(self) -> Use:
        """Its devices, as the quarantine wants to know of them."""
        return self._effects.use

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def _main(self) -> None:
        try:
            self._live()
        except Exception:
            logger.exception("%s: it is left as it is, until its lease expires", self._thread.name)
        finally:
            with contextlib.suppress(OSError):  # what is left of a copy is removed in a day
                self._effects.close()
            self.done = True
            self._ended.set()

    def _live(self) -> None:
        failure: Failed | None = None
        while not isinstance(self._phase, Closed):
            try:
                self._turn(self._see(failure))
            except StaleClaim as stale:
                logger.warning("%s: %s; its processes are stopped", self._thread.name, stale.message)
                self.orders.give_abandon()
            except Exception as error:
                if isinstance(error, Unavailable) and self.orders.gone.is_set():
                    continue  # an order ended a wait: the next turn obeys it
                if failure is not None:
                    raise
                logger.error("%s: it cannot go on", self._thread.name, exc_info=error)
                message = f"the worker failed: {type(error).__name__}: {error}"
                failure = Failed(ExitReport(reason=EndReason.WORKER_LOST, message=message))
            else:
                self._wait()

    def _see(self, failure: Failed | None) -> Observation:
        if self.orders.gone.is_set():
            return Unprepared()  # what is seen does not matter any more
        if failure is not None:
            return failure
        if not self._begun:
            self._effects.begin()
            self._begun = True
        return self._effects.observe()

    def _turn(self, seen: Observation) -> None:
        """Where an action fails, the phase stays, and what was done may be done again."""
        decision = decide(self._phase, seen, self._effects.intents())
        for action in decision.actions:
            self._effects.act(action)
        self._phase = decision.phase

    def _wait(self) -> None:
        if not isinstance(self._phase, Closed) and self.orders.changed.wait(self._effects.pause_s()):
            self.orders.changed.clear()
            if self.orders.asked:
                self.orders.asked = False
                self._effects.look()
