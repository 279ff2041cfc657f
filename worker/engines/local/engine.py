"""The engine of one host: each attempt is a supervisor and the tree of processes that it keeps."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
import logging
import os
from pathlib import Path
import signal
from typing import Literal

from torchyard.contract.errors import ConfigError
from torchyard.contract.job import EndReason
from torchyard.contract.recordfiles import write_record
from torchyard.contract.records import ExitReport, LaunchPlan, ProcessIdentity
from torchyard.contract.rundir import RunDir
from torchyard.contract.untrusted import read_untrusted
from torchyard.contract.views import DeviceView, StartsView
from worker.devices.inventory import Inventory
from worker.engines import base
from worker.engines.base import AttemptKey, Handle, Plan
from worker.engines.local import orphans, process, strays, supervisors
from worker.engines.local.endings import Endings
from worker.engines.local.environment import inherited
from worker.engines.local.launchers.base import Launcher
from worker.engines.local.launchers.torchrun import Torchrun
from worker.engines.local.launchers.warm import Warm, obstacle
from worker.engines.local.stops import Stops
from worker.engines.local.warm.keeper import NotWarm, WarmProcess

_WARM_S = 30.0
"""How long a start waits for a warm process that is about to be ready: a cold start takes as long."""
_NO_WARM = "this worker keeps no warm process: TORCHYARD_LAUNCHER is torchrun"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LocalHandle(ProcessIdentity):
    """The supervisor, as the attempt's row keeps it. Older versions stored a `ProcessIdentity` alone."""

    engine: Literal["local"] = "local"
    layout: Literal[1, 2] = 1
    """Of the run directory."""


class LocalEngine:
    """`runs` holds the run directories; `inventory` is what this host offers.

    Jobs start from `warm` where that is given and they can, else by `launcher`, which is torchrun.
    """

    def __init__(
        self, runs: Path, inventory: Inventory, *, launcher: Launcher | None = None, warm: WarmProcess | None = None
    ) -> None:
        self._runs = runs
        self._inventory = inventory
        self._launcher = launcher or Torchrun()
        self._warm = warm
        self._supervisors: dict[AttemptKey, LocalHandle] = {}
        """Of the attempts that have not ended, as far as is known."""
        self._stops: dict[AttemptKey, Stops] = {}
        self._endings = Endings()

    def start(self, plan: Plan) -> Handle:
        world_size = len(plan.devices)
        found = self.find(plan.key, world_size=world_size, claimed_at=plan.claimed_at)
        if found is not None:
            return found
        launcher, note = self._choose(plan)
        try:
            supervisor = self._begin(plan, launcher)
        except NotWarm as error:
            launcher, note = self._launcher, _must_be_cold(plan, str(error))
            supervisor = self._begin(plan, launcher)
        run = self._run(plan.key)
        handle = self._started(plan.key, run, supervisor or self._wait_for_record(run), world_size)
        return replace(handle, note=note)

    def find(self, key: AttemptKey, *, world_size: int, claimed_at: int) -> Handle | None:
        run = RunDir.found(self._runs / key.job_id / str(key.number))
        plan = read_untrusted(run.launch, LaunchPlan)
        if plan is None or plan.claimed_at not in {None, claimed_at}:
            return None
        supervisor = supervisors.recorded(run)
        if supervisor is None:
            if run.layout > 1 and not supervisors.is_running(run):
                return None  # the plan was written, and nothing was started
            supervisor = self._wait_for_record(run)
        return self._started(key, run, supervisor, world_size)

    def adopt(self, handle: Handle) -> None:
        self._supervisors[handle.key] = LocalHandle.from_dict(handle.stored)

    def poll(self, handle: Handle) -> base.Observation:
        if not handle.stored:
            return base.Absent()
        supervisor = LocalHandle.from_dict(handle.stored)
        run = self._run(handle.key, layout=supervisor.layout)
        state = process.state(supervisor)
        if state != "gone":
            if state == "stopped":
                self._rouse(handle.key, supervisor)
            ranks = _ranks(run, handle.world_size)
            if ranks:
                return base.Running(ranks, handle.world_size)
            return base.Waiting("the launcher brings the ranks up")
        report = read_untrusted(run.exit, ExitReport)
        if report is None:
            if orphans.find(handle.key.job_id, handle.key.number):
                return base.Running(0, handle.world_size, supervised=False)
            report = ExitReport(reason=EndReason.WORKER_LOST, message=_lost(supervisor))
        self._forget(handle.key)
        return base.Ended(report)

    def watch(self, handle: Handle, changed: Callable[[], None]) -> Callable[[], None]:
        return self._endings.watch(LocalHandle.from_dict(handle.stored), changed)

    def request_stop(self, handle: Handle, reason: EndReason, grace: timedelta) -> None:
        supervisor = LocalHandle.from_dict(handle.stored)
        run = self._run(handle.key, layout=supervisor.layout)
        try:
            self._stops.setdefault(handle.key, Stops(run)).ask(reason, grace=grace)
        except OSError as error:
            logger.warning("%s: cannot write a stop, a signal must do: %s", handle.key.job_id, error)
            process.send(supervisor, signal.SIGTERM)

    def kill(self, handle: Handle) -> str | None:
        run = RunDir.found(self._runs / handle.key.job_id / str(handle.key.number))
        left = strays.kill_attempt(run, handle.key)
        if left:
            return process.stubborn(left)
        self._forget(handle.key)
        return None

    def runs(self, key: AttemptKey) -> bool:
        return bool(process.find(key.job_id, key.number))

    def kill_others(self, keep: Collection[AttemptKey]) -> None:
        strays.kill_strays(self._runs, keep)

    def starts(self) -> StartsView:
        if self._warm is None:
            return StartsView(mode="cold", why=_NO_WARM)
        return self._warm.look()

    def capacity(self) -> list[DeviceView]:
        if self._inventory.nvml is None:
            return self._inventory.observe(ours=set())  # a look at all processes costs, and tells nothing of CPU slots
        pids = [supervisor.pid for supervisor in list(self._supervisors.values()) if supervisor.pid != NOBODY.pid]
        return self._inventory.observe(ours={item.pid for item in process.descendants(*pids)})

    def _run(self, key: AttemptKey, *, layout: Literal[1, 2] = 2) -> RunDir:
        return RunDir(self._runs / key.job_id / str(key.number), layout=layout)

    def _started(self, key: AttemptKey, run: RunDir, supervisor: ProcessIdentity, world_size: int) -> Handle:
        handle = LocalHandle(**supervisor.to_dict(), layout=run.layout)
        self._supervisors[key] = handle
        return Handle(key, world_size, handle.to_dict())

    def _choose(self, plan: Plan) -> tuple[Launcher, str | None]:
        """The launcher, and why it is not the warm one where that was hoped for."""
        if plan.launcher == "torchrun":
            return self._launcher, None
        if self._warm is None:
            return self._launcher, _must_be_cold(plan, _NO_WARM) if plan.launcher == "warm" else None
        try:
            reason = obstacle(plan, loaded=self._warm.modules(wait_s=_WARM_S))
        except NotWarm as error:
            reason = str(error)
        return (Warm(), None) if reason is None else (self._launcher, _must_be_cold(plan, reason))

    def _begin(self, plan: Plan, launcher: Launcher) -> ProcessIdentity | None:
        """Starts the supervisor; None if one runs already. Raises NotWarm if `launcher` lacks its warm process."""
        run = self._run(plan.key)
        write_record(run.launch, launch_plan(plan, run=run, launcher=launcher, slots=len(self._inventory.devices)))
        if self._warm is None:
            return supervisors.start(run)
        try:
            return supervisors.start(run, warm=self._warm)
        except NotWarm:
            if launcher.name == "warm":
                raise
            return supervisors.start(run)

    def _wait_for_record(self, run: RunDir) -> ProcessIdentity:
        """One that never says who it is is nobody's."""
        return supervisors.wait_for_record(run) or NOBODY

    def _rouse(self, key: AttemptKey, supervisor: ProcessIdentity) -> None:
        """A supervisor that is stopped sees no request, no time limit and no hang: it goes on, or dies at last."""
        logger.warning("%s: the supervisor of attempt %d is stopped", key.job_id, key.number)
        stops = self._stops.get(key)
        overdue = stops is not None and stops.overdue
        process.send(supervisor, signal.SIGKILL if overdue else signal.SIGCONT)

    def _forget(self, key: AttemptKey) -> None:
        supervisor = self._supervisors.pop(key, None)
        if supervisor is not None:
            orphans.forget(supervisor)
        self._stops.pop(key, None)


NOBODY = ProcessIdentity(pid=0, start_time=0, boot_id="")
"""In the place of a supervisor that was started and never said who it is."""


def launch_plan(
    plan: Plan, *, run: RunDir, launcher: Launcher, slots: int, environ: Mapping[str, str] = os.environ
) -> LaunchPlan:
    """What the supervisor starts, and its whole environment. `environ` is the worker's, `slots` its devices."""
    usual, fixed = launcher.environment(plan, slots=slots)
    return LaunchPlan(
        job_id=plan.key.job_id,
        attempt=plan.key.number,
        claimed_at=plan.claimed_at,
        launcher=launcher.name,
        argv=launcher.command(plan, folder=run.torchrun),
        env=inherited(environ) | usual | dict(plan.env) | fixed,
        cwd=str(plan.cwd),
        world_size=len(plan.devices),
        time_limit=plan.time_limit,
        stall_timeout=plan.stall_timeout,
        stop_grace=plan.stop_grace,
        reports=plan.reports,
    )


def _must_be_cold(plan: Plan, reason: str) -> str:
    if plan.launcher == "warm":
        raise ConfigError(f"launcher: warm is not possible: {reason}. With auto, the job starts by torchrun")
    return f"starts by torchrun, which takes seconds: {reason}"


def _ranks(run: RunDir, world_size: int) -> int:
    return sum(os.path.lexists(run.ranks / f"{rank}.json") for rank in range(world_size))


def _lost(supervisor: ProcessIdentity) -> str:
    if supervisor.pid == NOBODY.pid:
        return "the worker stopped while it started the attempt"
    if supervisor.boot_id != process.boot_id():
        return "the host was restarted"
    return "the attempt's supervisor was killed"
