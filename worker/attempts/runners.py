"""The runners of all attempts that this worker carries out now."""

from collections.abc import Callable, Iterable, Sequence
import logging
import threading

from store.facts.attempts import Claim
from worker.attempts.context import WorkerContext
from worker.attempts.runner import Runner
from worker.devices.quarantine import DeviceUse
from worker.host.attempt_key import AttemptKey

logger = logging.getLogger(__name__)


class AttemptRunners:
    """Only the daemon's thread may call it, except for `in_use`."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._runners: dict[int, Runner] = {}
        self._unstarted: list[Runner] = []
        """Adopted runners for which the system had no thread."""

    @property
    def ended(self) -> threading.Event:
        """Set when an attempt has ended: devices or a job may be free."""
        return self._context.attempt_ended

    def __len__(self) -> int:
        return len(self._runners)

    def __contains__(self, claim: Claim) -> bool:
        return claim.attempt_id in self._runners

    def adopt(self, claims: Sequence[Claim]) -> None:
        """Continues those attempts that no runner has, of an earlier daemon or of a runner that failed.

        What others the engine runs has been lost, and is ended.
        """
        followed = [runner.claim for runner in self._runners.values()]
        self._context.engine.kill_others({AttemptKey(claim.job_id, claim.number) for claim in (*claims, *followed)})
        for claim in claims:
            if claim in self:
                continue
            logger.info("%s: attempt %d is adopted", claim.job_id, claim.number)
            self._unstarted.append(self._add(claim))
        self._start_adopted()

    def start(self, claim: Claim) -> None:
        """Carries out the attempt. If the system has no thread left, the attempt ends, and costs no restart."""
        runner = self._add(claim)
        try:
            runner.start()
        except RuntimeError as error:
            logger.error("%s: attempt %d cannot begin: %s", claim.job_id, claim.number, error)
            runner.give_up(f"the worker cannot start a thread: {error}")

    def _add(self, claim: Claim) -> Runner:
        runner = self._runners[claim.attempt_id] = Runner(self._context, claim)
        return runner

    def _start_adopted(self) -> None:
        """Starts the runners of adopted attempts. Those for which there is no thread start later: their ranks run."""
        try:
            while self._unstarted:
                self._unstarted[0].start()
                self._unstarted.pop(0)
        except RuntimeError as error:
            logger.error("%d adopted attempts are continued later: %s", len(self._unstarted), error)

    def attempt_ids(self) -> list[int]:
        return list(self._runners)

    def done_ids(self) -> set[int]:
        """Returns the ids of the attempts that are closed and were not reaped yet."""
        return {attempt_id for attempt_id, runner in self._runners.items() if runner.done}

    def any_ending(self) -> bool:
        """Returns whether an attempt writes its last transaction now, or has just done so."""
        return any(runner.ending and not runner.done for runner in self._runners.values())

    def in_use(self, key: AttemptKey) -> bool:
        """Returns whether the attempt's run directory must not be touched. Any thread may ask."""
        claims = [runner.claim for runner in list(self._runners.values())]
        ours = any((claim.job_id, claim.number) == (key.job_id, key.number) for claim in claims)
        return ours or self._context.engine.runs(key)

    def device_uses(self) -> list[DeviceUse]:
        """Returns which attempt has which devices."""
        return [runner.device_use for runner in self._runners.values()]

    def abandoned_uses(self) -> list[DeviceUse]:
        """Returns the devices of attempts that were rescued and may still run here."""
        return [
            runner.device_use for runner in self._runners.values() if runner.instructions.abandon and not runner.done
        ]

    def abandon_others(self, attempt_ids: Iterable[int]) -> None:
        """Abandons the attempts that are not among `attempt_ids`: they belong to this worker no longer."""
        ours = set(attempt_ids)
        for attempt_id, runner in self._runners.items():
            if attempt_id not in ours and not runner.done:
                runner.instructions.request_abandon()

    def preempt(self, *, urgent: bool) -> None:
        """Has all attempts save a checkpoint and go back to the queue."""
        for runner in self._runners.values():
            runner.instructions.request_preempt(urgent=urgent)

    def recheck_intents(self) -> None:
        """Has all runners read the intents of their jobs' owners now."""
        for runner in self._runners.values():
            runner.instructions.recheck_intents()

    def reap(self, timeout: float) -> list[DeviceUse]:
        """Forgets the attempts that are closed, and returns the devices that they had."""
        self._start_adopted()
        done = [runner for runner in self._runners.values() if runner.done]
        for runner in done:
            runner.join(timeout)
            del self._runners[runner.claim.attempt_id]
        return [runner.device_use for runner in done]

    def detach(self, timeout: float, *, clock: Callable[[], float]) -> None:
        """Leaves all attempts to a later daemon. Waits for their runners at most `timeout` seconds."""
        for runner in self._runners.values():
            runner.instructions.request_detach()
        deadline = clock() + timeout
        for runner in self._runners.values():
            runner.join(max(0.0, deadline - clock()))
