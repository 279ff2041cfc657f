"""The runners of all attempts that this worker carries out now."""

from collections.abc import Callable, Iterable, Sequence
import logging
import threading

from store.worker.records import Claim
from torchyard.contract.cluster.devices import DeviceReport, EnvironmentReport
from worker.attempts.context import WorkerContext
from worker.attempts.runner import Runner
from worker.devices.quarantine import DeviceUse
from worker.host.attempt_key import AttemptKey
from worker.watch import LOST_S, Turns, Watch

logger = logging.getLogger(__name__)


class AttemptRunners:
    """The daemon's thread adds and forgets attempts. Any thread may ask, give instructions and give up."""

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
        runner = self._runners.get(claim.attempt_id)
        return runner is not None and not runner.lost

    def adopt(self, claims: Sequence[Claim]) -> None:
        """Gives a runner to each attempt that has none: an earlier daemon had it, or its runner failed."""
        for claim in claims:
            if claim.attempt_id in self._runners:
                continue
            logger.info("%s: adopted attempt %d", claim.job_id, claim.number)
            self._unstarted.append(self._add(claim))
        self._start_adopted()

    def environments(self) -> list[EnvironmentReport]:
        """Returns the environments of this host that jobs may name."""
        return self._context.environments.reports()

    def folders(self) -> list[str]:
        """Returns the folders of this host below which jobs may name files."""
        return [str(folder) for folder in self._context.allowed]

    def end_others(self) -> None:
        """Ends what the engine runs of attempts that no runner has: they are lost. May take long."""
        claims = [runner.claim for runner in self._all()]
        self._context.engine.kill_others({AttemptKey(claim.job_id, claim.number) for claim in claims})

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
            logger.error("%d adopted attempts continue later: %s", len(self._unstarted), error)

    def attempt_ids(self) -> list[int]:
        """Returns the ids of the attempts whose leases are renewed."""
        return [runner.claim.attempt_id for runner in self._all() if not runner.lost]

    def all_ids(self) -> list[int]:
        """Returns the ids of all attempts, also of those that are given up or closed."""
        return [runner.claim.attempt_id for runner in self._all()]

    def done_ids(self) -> set[int]:
        """Returns the ids of the attempts that are closed and were not reaped yet."""
        return {runner.claim.attempt_id for runner in self._all() if runner.done}

    def turns(self) -> list[Turns]:
        """Returns what to watch of the attempts that go on."""
        return [turns for runner in self._all() if not runner.done for turns in runner.turns]

    def give_up_lost(self, watch: Watch) -> None:
        """Gives up each attempt whose thread has made no turn for minutes, and has its processes ended.

        Its lease expires then. In a pool no lease does: another daemon may carry it on.
        """
        for runner in self._all():
            silent_s = watch.silent_s(runner.instructions.turns)
            if silent_s < LOST_S or runner.lost or runner.done or runner.claim.holder is not None:
                continue
            logger.error("%s: gave up attempt %d: it made no progress", runner.claim.job_id, runner.claim.number)
            runner.lost = True
            runner.instructions.request_abandon()
            threading.Thread(target=self._end_processes, args=(runner.claim,), name="ender", daemon=True).start()

    def _end_processes(self, claim: Claim) -> None:
        unkillable = self._context.engine.end_processes(AttemptKey(claim.job_id, claim.number))
        if unkillable is not None:
            logger.error("%s: attempt %d: %s", claim.job_id, claim.number, unkillable)

    def _all(self) -> list[Runner]:
        return list(self._runners.values())

    def any_ending(self) -> bool:
        """Returns whether an attempt writes its last transaction now, or has just done so."""
        return any(runner.ending and not runner.done for runner in self._runners.values())

    def in_use(self, key: AttemptKey) -> bool:
        """Returns whether the attempt's run directory must not be touched. Any thread may ask."""
        claims = [runner.claim for runner in self._all()]
        ours = any((claim.job_id, claim.number) == (key.job_id, key.number) for claim in claims)
        return ours or self._context.engine.runs(key)

    def device_uses(self) -> list[DeviceUse]:
        """Returns which attempt has which devices."""
        return [runner.device_use for runner in self._all()]

    def look_for_stray_memory(self) -> None:
        """Asks the driver what ranks hold on the devices of others. The thread of the observation calls it."""
        for runner in self._all():
            if not runner.done:
                runner.look_for_stray_memory()

    def have_all(self, devices: Sequence[DeviceReport]) -> bool:
        """Returns whether attempts of this worker have all of `devices`."""
        used = {uuid for use in self.device_uses() for uuid in use.devices or ()}
        return bool(devices) and all(device.uuid in used for device in devices)

    def abandoned_uses(self) -> list[DeviceUse]:
        """Returns the devices of attempts that were rescued and may still run here."""
        return [runner.device_use for runner in self._all() if runner.instructions.abandon and not runner.done]

    def abandon(self, attempt_ids: Iterable[int]) -> None:
        """Abandons these attempts: they belong to this worker no longer."""
        for attempt_id in attempt_ids:
            runner = self._runners.get(attempt_id)
            if runner is not None and not runner.done:
                runner.instructions.request_abandon()

    def abandon_all(self) -> None:
        self.abandon(self.attempt_ids())

    def preempt(self, *, urgent: bool) -> None:
        """Has all attempts save a checkpoint and go back to the queue."""
        for runner in self._runners.values():
            runner.instructions.request_preempt(urgent=urgent)

    def recheck_intents(self) -> None:
        """Has all runners read the intents of their jobs' owners now."""
        for runner in self._runners.values():
            runner.instructions.recheck_intents()

    def reap(self, timeout: float, *, note: Callable[[DeviceUse], object] = lambda use: None) -> list[DeviceUse]:
        """Forgets the attempts that are closed, and returns the devices that they had. Tells them to `note` before."""
        self._start_adopted()
        done = [runner for runner in self._all() if runner.done]
        for runner in done:
            runner.join(timeout)
            note(runner.device_use)
            del self._runners[runner.claim.attempt_id]
        return [runner.device_use for runner in done]

    def detach(self, timeout: float, *, clock: Callable[[], float]) -> None:
        """Leaves all attempts to a later daemon. Waits for their runners at most `timeout` seconds."""
        for runner in self._runners.values():
            runner.instructions.request_detach()
        deadline = clock() + timeout
        for runner in self._runners.values():
            runner.join(max(0.0, deadline - clock()))
