"""The processes of an attempt: finds them, ends them, and removes what they leave outside the run directory."""

from collections.abc import Callable
from datetime import timedelta
import functools
import os
import time

from torchyard.contract.attempts.records import LaunchPlan, ProcessIdentity
from torchyard.contract.attempts.rundir import RunDir
from worker.engines.local.launchers.base import Launch
from worker.engines.local.supervisor import temporaries
from worker.engines.local.supervisor.ending import tell_owner
from worker.engines.local.supervisor.shared_memory import SharedMemoryFiles
from worker.host import process
from worker.host.proctable import TICKS

_EARLIER_TRIES_S = 60
"""A supervisor that was started for the same attempt and killed, as nobody learned of it, is no older than this."""
KILL_TIMEOUT = timedelta(seconds=30)
"""After so long, a killed process counts as unkillable. A process with much GPU memory needs some seconds to end."""


class AttemptProcesses:
    """The processes below this one, its attempt's supervisor. `reap` reaps those that have ended.

    `is_first`: whether no supervisor before this one has started anything of the attempt.
    """

    def __init__(self, run: RunDir, plan: LaunchPlan, *, reap: Callable[[], None], is_first: bool) -> None:
        self.launch: Launch | None = None
        """Set once there is one."""
        self._run = run
        self._plan = plan
        self._reap = reap
        self._is_alone = is_first and plan.sandbox is not None and plan.sandbox.own_pids
        """Whether all processes of the attempt are in the pid namespace that its launch has."""
        me = process.identity(os.getpid())
        self._since = me.start_time - _EARLIER_TRIES_S * TICKS if me is not None else 0
        """The start time before which no process of the attempt began."""
        shares_memory = plan.sandbox is None or not plan.sandbox.own_mounts
        self._shared_memory = SharedMemoryFiles() if shares_memory else None

    def running(self) -> list[ProcessIdentity]:
        own = process.descendants(os.getpid())
        return own if self.launch is None else [*own, *self.launch.processes()]

    def look(self) -> None:
        """Notes what is to be removed later. Call it often."""
        if self._shared_memory is not None:
            self._shared_memory.look(lambda: process.descendants(os.getpid()))

    def kill_all(self) -> None:
        """Kills all processes of the attempt until none is left: the one that the ranks need comes last."""
        self._reap()
        if not self._kernel_has_ended_all():
            self._search_and_kill_all()
        self._remove_temporary_files()

    def _kernel_has_ended_all(self) -> bool:
        """Whether the kernel has ended all processes of the attempt, as it does with the first one of a namespace."""
        exited = self.launch is not None and self.launch.exit_code is not None
        return self._is_alone and exited and not process.has_children()

    def _search_and_kill_all(self) -> None:
        last_killed = self.launch.last_killed if self.launch is not None else None
        send = self.launch.send if self.launch is not None else process.send

        def find_all() -> list[ProcessIdentity]:
            self._reap()
            beside = self.launch.processes() if self.launch is not None else []
            by_pid = {item.pid: item for item in (*self._find_own(), *beside)}
            return sorted(by_pid.values(), key=lambda item: item.pid == last_killed)

        if self._shared_memory is not None:
            self._shared_memory.look(find_all, at_once=True)
        kill_all = functools.partial(process.kill_all, find_all, send_by=send)
        deadline, warned = time.monotonic() + KILL_TIMEOUT.total_seconds(), False
        unkillable = kill_all(timeout=KILL_TIMEOUT)
        if unkillable:
            tell_owner(self._run, self._plan, process.describe_unkillable(unkillable))
            kill_all(timeout=None)
        while process.kill_children():
            kill_all(timeout=KILL_TIMEOUT)
            if not warned and time.monotonic() > deadline:
                text = "processes of the attempt keep forking and hold its devices"
                tell_owner(self._run, self._plan, text)
                warned = True
        self._reap()

    def _find_own(self) -> list[ProcessIdentity]:
        """Returns the attempt's processes, but not those of another node, which may be on this host."""
        plan, me = self._plan, os.getpid()
        if plan.node is not None:
            return process.descendants(me)
        return process.find(plan.job_id, plan.attempt, since=self._since, below=(me,))

    def _remove_temporary_files(self) -> None:
        """Removes what the processes, which have ended, left outside the folders of the job, as far as possible."""
        if self._shared_memory is not None:
            self._shared_memory.remove()
        temporaries.end(self._run, self._plan)
