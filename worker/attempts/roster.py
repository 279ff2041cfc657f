"""The attempts that this worker has in hand."""

from collections.abc import Callable, Iterable, Sequence
import logging

from store.rows.attempts import Claim
from worker.attempts.effects import Host
from worker.attempts.runner import Runner
from worker.devices.quarantine import Use
from worker.engines.base import AttemptKey

logger = logging.getLogger(__name__)


class Roster:
    """For the daemon's thread alone, but for `in_use`."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._runners: dict[int, Runner] = {}

    def __len__(self) -> int:
        return len(self._runners)

    def __contains__(self, claim: Claim) -> bool:
        return claim.attempt_id in self._runners

    def adopt(self, claims: Sequence[Claim]) -> None:
        """Goes on with what an earlier daemon has left, and ends what it lost meanwhile."""
        self._host.engine.kill_others({AttemptKey(claim.job_id, claim.number) for claim in claims})
        for claim in claims:
            logger.info("%s: attempt %d is adopted", claim.job_id, claim.number)
            self.start(claim)

    def start(self, claim: Claim) -> None:
        runner = Runner(self._host, claim)
        self._runners[claim.attempt_id] = runner
        runner.start()

    def attempt_ids(self) -> list[int]:
        return list(self._runners)

    def done(self) -> set[int]:
        """The ids of the attempts that are closed, and were not reaped yet."""
        return {attempt_id for attempt_id, runner in self._runners.items() if runner.done}

    def in_use(self, key: AttemptKey) -> bool:
        """Whether the attempt's run directory may not be touched. May be asked in any thread."""
        claims = [runner.claim for runner in list(self._runners.values())]
        ours = any((claim.job_id, claim.number) == (key.job_id, key.number) for claim in claims)
        return ours or self._host.engine.runs(key)

    def uses(self) -> list[Use]:
        """Which devices are whose."""
        return [runner.use for runner in self._runners.values()]

    def abandoned(self) -> list[Use]:
        """The devices of attempts that were rescued, and may still run here."""
        return [runner.use for runner in self._runners.values() if runner.orders.abandon and not runner.done]

    def keep_only(self, attempt_ids: Iterable[int]) -> None:
        """The others are not this worker's any more."""
        ours = set(attempt_ids)
        for attempt_id, runner in self._runners.items():
            if attempt_id not in ours and not runner.done:
                runner.orders.give_abandon()

    def preempt(self, *, hurry: bool) -> None:
        """All save and go back to the queue."""
        for runner in self._runners.values():
            runner.orders.give_preempt(hurry=hurry)

    def look(self) -> None:
        """All read what their owners want now."""
        for runner in self._runners.values():
            runner.orders.look()

    def reap(self, timeout: float) -> list[Use]:
        """Forgets the attempts that are closed, and answers what devices they had."""
        done = [runner for runner in self._runners.values() if runner.done]
        for runner in done:
            runner.join(timeout)
            del self._runners[runner.claim.attempt_id]
        return [runner.use for runner in done]

    def detach(self, timeout: float, *, clock: Callable[[], float]) -> None:
        """Leaves all to a later daemon. Waits for them at most `timeout` seconds."""
        for runner in self._runners.values():
            runner.orders.give_detach()
        deadline = clock() + timeout
        for runner in self._runners.values():
            runner.join(max(0.0, deadline - clock()))
