"""The engine of one host: each attempt is a supervisor and the processes below it."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
import logging
import os
from pathlib import Path
import signal
import socket
from typing import Literal

from torchyard.contract.attempts.records import ExitReport, LaunchPlan, ProcessIdentity
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.cluster.devices import DeviceReport, IsolationReport, StartsReport
from torchyard.contract.errors import ConfigError
from torchyard.contract.reach.orders import Call
from torchyard.contract.states import EndReason
from torchyard.host.identity import boot_id
from torchyard.host.recordfiles import write_record
from torchyard.host.untrusted import read_untrusted
from worker.devices.inventory import Inventory
from worker.engines import base
from worker.engines.base import AttemptPlan, Handle
from worker.engines.local import entrance, leftovers, stacks, stray, supervisors
from worker.engines.local.confinement import Confinement
from worker.engines.local.exits import ExitWatcher
from worker.engines.local.launch_plans import launch_plan
from worker.engines.local.launchers import strictness
from worker.engines.local.launchers.base import Launcher
from worker.engines.local.launchers.command import CommandLauncher
from worker.engines.local.launchers.torchrun import TorchrunLauncher
from worker.engines.local.launchers.warm import WarmLauncher, warm_start_obstacle
from worker.engines.local.metering import Meter
from worker.engines.local.stop_requests import StopRequester
from worker.engines.local.supervisor import temporaries
from worker.engines.local.warm.manager import WarmProcess, WarmProcessUnavailable
from worker.host import orphans, process
from worker.host.attempt_key import AttemptKey
from worker.sandbox import levels

_WARM_WAIT_S = 30.0
"""How long a start waits for a warm process that is not ready yet: a cold start could take as long."""
_NO_WARM_PROCESS = "no warm process: TORCHYARD_LAUNCHER is torchrun"
_STRICT_IS_COLD = "strict isolation starts every program cold"
_ANOTHER_PYTHON_IS_COLD = "it has an environment of its own"
_OWN_PACKAGES_ARE_COLD = "it has packages of its own"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LocalHandle(ProcessIdentity):
    """The supervisor, as the attempt's row keeps it."""

    engine: Literal["local"] = "local"
    isolation: str = ""
    """How the attempt is isolated, for the job's owner."""


class LocalEngine:
    """`runs` contains the run directories. `inventory` has the devices that this host offers.

    Jobs start from `warm` if it is given and can start them, otherwise with `launcher`, which is torchrun. They get
    `umask`. Without `confinement` they may touch what this user may.
    """

    def __init__(
        self,
        runs: Path,
        inventory: Inventory,
        *,
        launcher: Launcher | None = None,
        warm: WarmProcess | None = None,
        umask: int = 0o077,
        confinement: Confinement | None = None,
    ) -> None:
        self._runs = runs
        self._inventory = inventory
        self._cold_launcher = launcher or TorchrunLauncher()
        self._warm = warm
        self._umask = umask
        self._confinement = confinement
        self._supervisors: dict[AttemptKey, LocalHandle] = {}
        """The supervisors of the attempts that are not known to have ended."""
        self._stop_requesters: dict[AttemptKey, StopRequester] = {}
        self._exits = ExitWatcher()
        self._meter = Meter()

    def announce(self, plan: AttemptPlan) -> Handle | None:
        return None

    def start(self, plan: AttemptPlan) -> Handle:
        running = self.find(plan.key, world_size=plan.world_size, claimed_at=plan.claimed_at)
        if running is not None:
            return running
        launcher, note = self._choose_launcher(plan)
        try:
            supervisor = self._start_supervisor(plan, launcher)
        except WarmProcessUnavailable as error:
            launcher, note = self._cold_launcher, _cold_start_note(plan, str(error))
            supervisor = self._start_supervisor(plan, launcher)
        run = self._run_dir(plan.key)
        handle = self._started(plan.key, supervisor or self._wait_for_record(run), plan.world_size)
        return replace(handle, note=note)

    def find(self, key: AttemptKey, *, world_size: int, claimed_at: int) -> Handle | None:
        run = self._run_dir(key)
        plan = read_untrusted(run.launch, LaunchPlan)
        if plan is None or plan.claimed_at != claimed_at:
            return None
        supervisor = supervisors.recorded(run)
        if supervisor is None:
            if not supervisors.is_running(run):
                return None  # the plan was written, but nothing was started
            supervisor = self._wait_for_record(run)
        return self._started(key, supervisor, world_size)

    def adopt(self, handle: Handle) -> None:
        self._supervisors[handle.key] = LocalHandle.from_dict(handle.stored)

    def poll(self, handle: Handle) -> base.Observation:
        if not handle.stored:
            return base.Absent()
        supervisor = LocalHandle.from_dict(handle.stored)
        run = self._run_dir(handle.key)
        state = process.state(supervisor)
        if state != "gone":
            self._urge_supervisor(handle.key, supervisor, stopped=state == "stopped")
            ranks = _count_ranks(run, handle.world_size)
            if ranks:
                return base.Running(ranks, handle.world_size)
            return base.Waiting("the launcher starts the ranks")
        report = read_untrusted(run.exit, ExitReport)
        if report is None:
            if orphans.find(handle.key.job_id, handle.key.number):
                return base.Running(0, handle.world_size, supervised=False)
            report = ExitReport(reason=EndReason.WORKER_LOST, message=_why_supervisor_is_gone(supervisor))
        self._forget(handle.key)
        return base.Ended(report)

    def watch(self, handle: Handle, changed: Callable[[], None]) -> Callable[[], None]:
        return self._exits.watch(LocalHandle.from_dict(handle.stored), changed)

    def request_stop(self, handle: Handle, reason: EndReason, grace: timedelta) -> None:
        supervisor = LocalHandle.from_dict(handle.stored)
        run = self._run_dir(handle.key)
        requester = self._stop_requesters.setdefault(handle.key, StopRequester(run))
        try:
            requester.request(reason, grace=grace)
        except OSError as error:
            # The supervisor that gets the signal knows only the grace of its plan.
            number = signal.SIGKILL if requester.overdue else signal.SIGTERM
            logger.warning("%s: cannot write a stop request; sending %s: %s", handle.key.job_id, number.name, error)
            process.send(supervisor, number)

    def request_stacks(self, handle: Handle) -> Callable[[], list[base.RankStacks]]:
        supervisor = LocalHandle.from_dict(handle.stored)
        run = self._run_dir(handle.key)
        return stacks.request_stacks(run, supervisor, ranks=range(handle.world_size))

    def reach(self, handle: Handle, call: Call) -> socket.socket:
        return entrance.reach(self._run_dir(handle.key), call)

    def stray_memory(self, handle: Handle, devices: Sequence[str]) -> list[base.StrayMemory]:
        supervisor = LocalHandle.from_dict(handle.stored)
        return stray.stray_memory(self._run_dir(handle.key), supervisor, self._inventory, devices=devices)

    def kill(self, handle: Handle) -> str | None:
        run = self._run_dir(handle.key)
        unkillable = leftovers.kill_attempt(run, handle.key)
        if unkillable:
            return process.describe_unkillable(unkillable)
        self._forget(handle.key)
        return None

    def end_processes(self, key: AttemptKey) -> str | None:
        timeout = timedelta(seconds=leftovers.DEADLINE_S)
        unkillable = orphans.kill_attempt(key.job_id, key.number, timeout=timeout)
        return process.describe_unkillable(unkillable) if unkillable else None

    def runs(self, key: AttemptKey) -> bool:
        return bool(process.find(key.job_id, key.number))

    def kill_others(self, keep: Collection[AttemptKey]) -> None:
        leftovers.kill_leftovers(self._runs, keep)
        if self._confinement is not None:
            self._confinement.own_folders.remove_other_temporaries(keep)

    def starts(self) -> StartsReport:
        why = _STRICT_IS_COLD if self._isolation.level == "strict" else _NO_WARM_PROCESS
        starts = StartsReport(mode="cold", why=why) if self._warm is None else self._warm.status()
        return replace(starts, isolation=self._isolation)

    @property
    def _isolation(self) -> IsolationReport:
        return levels.OFF if self._confinement is None else self._confinement.isolation

    def capacity(self) -> list[DeviceReport]:
        if self._inventory.nvml is None:  # reading all processes is slow, and CPU slots need no pids
            return self._inventory.observe(own_pids=set())
        supervisors = list(self._supervisors.items())
        pids = [supervisor.pid for _, supervisor in supervisors if supervisor.pid != UNKNOWN_SUPERVISOR.pid]
        of_helpers = [item for key, supervisor in supervisors for item in self._of_helpers(key, supervisor)]
        return self._inventory.observe(own_pids={item.pid for item in (*process.descendants(*pids), *of_helpers)})

    def usage(self) -> dict[AttemptKey, float]:
        if all(device.kind != "cpu" for device in self._inventory.devices):
            return {}
        roots = {
            key: [supervisor.pid, *(item.pid for item in self._of_helpers(key, supervisor))]
            for key, supervisor in list(self._supervisors.items())
            if supervisor.pid != UNKNOWN_SUPERVISOR.pid
        }
        return self._meter.shares(roots)

    def _of_helpers(self, key: AttemptKey, supervisor: LocalHandle) -> list[ProcessIdentity]:
        """Returns the attempt's processes that the supervisor's helper has started, which are not below it."""
        return strictness.recorded_processes(self._run_dir(key))

    def _run_dir(self, key: AttemptKey) -> RunDir:
        return RunDir(self._runs / key.job_id / str(key.number))

    def _started(self, key: AttemptKey, supervisor: ProcessIdentity, world_size: int) -> Handle:
        isolation = levels.describe(self._isolation)
        handle = LocalHandle(**supervisor.to_dict(), isolation=isolation)
        self._supervisors[key] = handle
        return Handle(key, world_size, handle.to_dict())

    def _choose_launcher(self, plan: AttemptPlan) -> tuple[Launcher, str | None]:
        """Returns the launcher, and a note for the owner if a warm start is not possible."""
        if plan.is_command:
            if plan.launcher == "warm":
                raise ConfigError("launcher: warm cannot start a command: omit the launcher")
            return CommandLauncher(), None
        if plan.launcher == "torchrun":
            return self._cold_launcher, None
        if plan.named is not None or plan.environment is not None:
            why = _OWN_PACKAGES_ARE_COLD if plan.named is None else _ANOTHER_PYTHON_IS_COLD
            return self._cold_launcher, _cold_start_note(plan, why)
        if self._isolation.level == "strict":
            return self._cold_launcher, _cold_start_note(plan, _STRICT_IS_COLD)
        if self._warm is None:
            note = _cold_start_note(plan, _NO_WARM_PROCESS) if plan.launcher == "warm" else None
            return self._cold_launcher, note
        try:
            reason = warm_start_obstacle(plan, loaded=self._warm.loaded_modules(wait_s=_WARM_WAIT_S))
        except WarmProcessUnavailable as error:
            reason = str(error)
        return (WarmLauncher(), None) if reason is None else (self._cold_launcher, _cold_start_note(plan, reason))

    def _start_supervisor(self, plan: AttemptPlan, launcher: Launcher) -> ProcessIdentity | None:
        """Returns None if a supervisor runs already.

        Raises WarmProcessUnavailable if `launcher` needs the warm process and there is none.
        """
        run = self._run_dir(plan.key)
        slots, umask, confinement = len(self._inventory.devices), self._umask, self._confinement
        written = launch_plan(
            plan, run=run, launcher=launcher, slots=slots, devices=plan.devices, umask=umask, confinement=confinement
        )
        write_record(run.launch, written)
        if self._warm is None:
            return supervisors.start(run, secrets=plan.secrets)
        try:
            return supervisors.start(run, secrets=plan.secrets, warm=self._warm)
        except WarmProcessUnavailable:
            if launcher.name == "warm":
                raise
            return supervisors.start(run, secrets=plan.secrets)

    def _wait_for_record(self, run: RunDir) -> ProcessIdentity:
        return supervisors.wait_for_record(run) or UNKNOWN_SUPERVISOR

    def _urge_supervisor(self, key: AttemptKey, supervisor: ProcessIdentity, *, stopped: bool) -> None:
        """Continues a stopped supervisor, which sees no request and no time limit. Kills it if a stop is overdue."""
        requester = self._stop_requesters.get(key)
        overdue = requester is not None and (requester.overdue if stopped else requester.stuck)
        if stopped or overdue:
            state = "is stopped" if stopped else "does not end its processes"
            logger.warning("%s: the supervisor of attempt %d %s", key.job_id, key.number, state)
            process.send(supervisor, signal.SIGKILL if overdue else signal.SIGCONT)

    def _forget(self, key: AttemptKey) -> None:
        supervisor = self._supervisors.pop(key, None)
        if supervisor is not None:
            orphans.unregister(supervisor)
        self._stop_requesters.pop(key, None)
        if self._confinement is not None:
            run = self._run_dir(key)
            plan = read_untrusted(run.launch, LaunchPlan)
            if plan is not None:  # a supervisor that was killed has not done it
                temporaries.end(run, plan)
            self._confinement.own_folders.remove_temporary(key)


UNKNOWN_SUPERVISOR = ProcessIdentity(pid=0, start_time=0, boot_id="")
"""Stands for a supervisor that was started and never wrote its record."""


def _cold_start_note(plan: AttemptPlan, reason: str) -> str:
    """Returns the note for the owner. Raises ConfigError if the job allows only a warm start."""
    if plan.launcher == "warm":
        raise ConfigError(f"launcher: warm is not possible: {reason}. With auto, the job starts with torchrun")
    return f"starts with torchrun, which takes seconds: {reason}"


def _count_ranks(run: RunDir, world_size: int) -> int:
    return sum(os.path.lexists(run.ranks / f"{rank}.json") for rank in range(world_size))


def _why_supervisor_is_gone(supervisor: ProcessIdentity) -> str:
    if supervisor.pid == UNKNOWN_SUPERVISOR.pid:
        return "the worker stopped while it started the attempt"
    if supervisor.boot_id != boot_id():
        return "the host was restarted"
    return "the attempt's supervisor was killed"
