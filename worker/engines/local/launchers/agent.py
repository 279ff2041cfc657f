"""The agent of an attempt: the process between supervisor and ranks, which enters the sandbox before it starts them."""

from collections.abc import Callable, Collection, Sequence
import os
from typing import NoReturn

from torchyard.contract.records import LaunchPlan
from torchyard.contract.rundir import RunDir
from worker.engines.local.warm import fork
from worker.sandbox.entry import enter


class AgentProcess:
    """A fork of the supervisor that enters the plan's sandbox and then calls `work`. Its output is the launcher's log.

    Raises OSError if the fork fails. A sandbox that cannot be entered ends the agent with a traceback in its log.
    """

    def __init__(
        self, plan: LaunchPlan, run: RunDir, work: Callable[[], NoReturn], *, keep: Collection[int] = ()
    ) -> None:
        self.exit_code: int | None = None
        """The exit code, or minus the number of the signal that killed it. None while it runs."""
        self._plan = plan
        self._logs = (run.log("launcher", "stdout"), run.log("launcher", "stderr"))
        self._work = work
        self.pid = fork.fork(self._run, keep=keep)
        self._pidfd = os.pidfd_open(self.pid)

    def descriptors(self) -> Sequence[int]:
        return [self._pidfd] if self.exit_code is None else []

    def child_exited(self, pid: int, code: int) -> None:
        if pid == self.pid:
            self.exit_code = code

    def close(self) -> None:
        os.close(self._pidfd)

    def _run(self) -> NoReturn:
        fork.redirect(self._logs)
        fork.set_environment(self._plan)
        if self._plan.sandbox is not None:
            enter(self._plan.sandbox)
        self._work()
