"""Prepares and starts one attempt. An error that its start meets becomes an observation for `lifecycle`."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
import logging
import time
from typing import TypeVar

from store.worker.records import AttemptFacts
from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.errors import ConfigError, DataError, InvalidSpec
from torchyard.contract.spec.spec import ScriptSpec, parse_spec
from torchyard.contract.states import EndReason, Reason
from torchyard.host import disk
from worker.attempts.context import AttemptContext
from worker.attempts.phases import Failed, Installing, Prepared, Unprepared
from worker.attempts.prepare.preparation import LEAST_TIME, NotWanted, Preparation, StillRuns
from worker.engines.base import AttemptPlan, Handle, NotStartedYet
from worker.packages import requirements
from worker.packages.cache import PackageCache
from worker.packages.installation import UNREACHABLE, Installation, NotInstalled

T = TypeVar("T")

_TOPIC = "prepare"
_PREPARE_AGAIN_S = 1.0
_START_AGAIN_S = 10.0
LONGEST_END_S = 300.0
"""For so long, the attempt waits for the last process of an earlier one."""
_MOST_FILLED = 3
"""After so many installations that fill the disk, the attempt ends, and may start on another host."""

_MOST_UNREACHABLE = 3
"""So often a job goes back to the queue because its packages cannot be downloaded."""

logger = logging.getLogger(__name__)


class Setup:
    """Every method but `close` raises what the store raises."""

    def __init__(self, attempt: AttemptContext, *, check_wanted: Callable[[], None]) -> None:
        self._attempt = attempt
        self._preparation = Preparation(attempt, check_wanted=check_wanted)
        self._packages = attempt.worker.packages
        self._plan: AttemptPlan | None = None
        self._installation: Installation | None = None
        self._is_prepared = False
        """Whether what was prepared can be started as it is: an earlier start only has to be repeated."""
        self._installs = False
        """Whether the job's reason says that packages are installed."""
        self._filled = 0
        self._still_runs_since: float | None = None
        """Since when it waits for the end of an earlier attempt."""
        self.has_log = False
        """Whether an installation may have written into the log of the attempt."""

    def prepare(self, facts: AttemptFacts) -> Prepared | Installing | Unprepared | Failed:
        """Writes the run directory, and then has the attempt's own packages installed. Does not wait for that."""
        if self._is_prepared:
            self._is_prepared = False
            return Prepared()
        observed = self._prepare(facts)
        installs = isinstance(observed, Installing)
        if installs != self._installs:
            message = "installs packages" if installs else f"attempt {self._attempt.key.number} starts"
            self._attempt.records.set_reason(Reason("starting", message))
            self._installs = installs
        return observed

    def announce(self) -> Handle | None:
        """Returns the handle to store before `start`, if the engine wants one to be."""
        assert self._plan is not None
        return self._attempt.worker.engine.announce(self._plan)

    def start(self, *, used: timedelta) -> Handle | Unprepared | Failed:
        """Has the engine start the attempt, after `prepare`. `used`: what it has used of its time limit by now."""
        assert self._plan is not None
        plan = replace(self._plan, time_limit=max(self._plan.time_limit - used, LEAST_TIME))
        try:
            handle = self._try(lambda: self._attempt.worker.engine.start(plan))
        except Exception as error:
            logger.exception("%s: the start failed", plan.key.job_id)
            # Something may have been started: as an observation of a start, it has that killed.
            return _failed(EndReason.WORKER_LOST, f"the worker failed: {type(error).__name__}: {error}")
        self._is_prepared = isinstance(handle, Unprepared)
        if isinstance(handle, Handle):
            self._attempt.notices.report_recovery(_TOPIC, "the attempt was prepared, and starts now")
        return handle

    def close(self) -> None:
        """Ends an installation that goes on."""
        installation, self._installation = self._installation, None
        if installation is not None:
            installation.close()

    def _prepare(self, facts: AttemptFacts) -> Prepared | Installing | Unprepared | Failed:
        if self._installation is None:
            if self._filled and disk.has_little_space(self._packages.root):
                return Unprepared("less than 1 GiB of disk is free; the packages filled it before")
            plan = self._try(lambda: self._preparation.prepare(facts))
            if isinstance(plan, Unprepared | Failed):
                return plan
            run, packages = self._attempt.run, self._packages
            installation = self._try(lambda: _installation_of(facts, plan, packages=packages, run=run))
            if isinstance(installation, Unprepared | Failed):
                return installation
            self._plan, self._installation = plan, installation
        if self._installation is None:
            return Prepared()
        assert self._plan is not None
        return self._install(self._plan, self._installation)

    def _install(self, plan: AttemptPlan, installation: Installation) -> Prepared | Installing | Unprepared | Failed:
        self.has_log = True
        outcome = self._try(installation.poll)
        if outcome is None:
            return Installing()
        self._filled += installation.has_filled_disk
        self.close()
        if self._filled >= _MOST_FILLED:
            message = f"the packages do not fit on the disk of this host: they have filled it {self._filled} times"
            return _failed(EndReason.WORKER_LOST, message)
        if isinstance(outcome, NotInstalled):
            outcome = self._unless_tried(outcome)
            return Failed(ExitReport(reason=outcome.reason, message=outcome.message, may_retry=outcome.may_retry))
        if isinstance(outcome, Unprepared | Failed):
            return outcome
        self._plan = replace(plan, environment=outcome.environment)
        return Prepared()

    def _unless_tried(self, failure: NotInstalled) -> NotInstalled:
        """Has the job fail whose packages could not be downloaded in so many attempts: the address may be wrong."""
        if not failure.message.startswith(UNREACHABLE):
            return failure
        tried = self._attempt.records.count_ended(EndReason.WORKER_LOST, since=1, why=UNREACHABLE)
        if tried < _MOST_UNREACHABLE:
            return failure
        return NotInstalled(EndReason.LAUNCH_FAILED, f"{failure.message}\nIt was tried {tried + 1} times.")

    def _try(self, step: Callable[[], T]) -> T | Unprepared | Failed:
        try:
            return step()
        except NotWanted:
            return Unprepared()
        except NotStartedYet as error:
            return self._wait(f"the attempt cannot be started now; retrying: {error}", str(error), _START_AGAIN_S)
        except StillRuns as error:
            return self._wait_for_end(str(error))
        except (DataError, ConfigError, InvalidSpec) as error:
            reason = EndReason.DATA_ERROR if isinstance(error, DataError) else EndReason.CONFIG_ERROR
            return _failed(reason, error.message)
        except OSError as error:
            return self._refused(error)

    def _wait_for_end(self, problem: str) -> Unprepared | Failed:
        """Waits for the last process of an earlier attempt. One that does not end sends the job to another host."""
        self._still_runs_since = self._still_runs_since or time.monotonic()
        if time.monotonic() - self._still_runs_since < LONGEST_END_S:
            return self._wait(f"the attempt waits: {problem}", problem, _PREPARE_AGAIN_S)
        return _failed(EndReason.WORKER_LOST, f"{problem}; the job may start on another host")

    def _refused(self, error: OSError) -> Unprepared | Failed:
        """Waits while a disk is full. A broken disk costs no restart."""
        if error.errno in disk.SCARCE:
            return self._wait(f"the attempt cannot be prepared now; retrying: {error}", str(error), _PREPARE_AGAIN_S)
        reason = EndReason.WORKER_LOST if error.errno in disk.PASSING else EndReason.LAUNCH_FAILED
        return _failed(reason, f"the attempt cannot be prepared: {error}")

    def _wait(self, notice: str, problem: str, pause_s: float) -> Unprepared:
        self._attempt.notices.report_problem(_TOPIC, notice)
        return Unprepared(problem, pause_s)


def _failed(reason: EndReason, message: str) -> Failed:
    return Failed(ExitReport(reason=reason, message=message))


def _installation_of(
    attempt: AttemptFacts, plan: AttemptPlan, *, packages: PackageCache, run: RunDir
) -> Installation | None:
    """Returns what installs the packages of an attempt; None if its job takes the worker's. Raises ConfigError."""
    spec = parse_spec(attempt.spec)
    if not isinstance(spec, ScriptSpec) or spec.config.requirements is None:
        return None
    obstacle = packages.rules.obstacle()
    if obstacle is not None:
        advice = "leave config.requirements out, or ask the operator to install what is needed"
        raise ConfigError(f"{obstacle}: {advice}")
    order = requirements.order_of(plan.source or plan.cwd, spec.config, packages.rules)
    return None if order is None else Installation(packages, order, owner=attempt.owner, run=run)
