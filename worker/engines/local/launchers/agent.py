"""The agent of an attempt: the process between supervisor and ranks, which enters the sandbox before it starts them."""

from collections.abc import Callable, Sequence
import contextlib
from dataclasses import dataclass, field
import errno
import os
import signal
from typing import Annotated, NoReturn

from torchyard.contract.record import Record, at_most, between, cut_at
from torchyard.contract.records import ExitCode, LaunchPlan, ProcessIdentity
from torchyard.contract.rundir import RunDir
from worker.engines.local import process
from worker.engines.local.warm import fork
from worker.sandbox.entry import enter

_LONGEST_REPORT = 1 << 16


@dataclass(frozen=True, kw_only=True)
class AgentReport(Record):
    """What an agent says at its end. Its job may forge it."""

    failures: Annotated[list[Annotated[list[ExitCode], at_most(2)]], at_most(4096)] = field(
        default_factory=list[list[int]]
    )
    """The rank and the exit code of each failed rank, the first failure in front."""
    error: Annotated[int, between(0, 4095)] = 0
    """The `errno` of the system's error that kept the ranks from being started, or 0."""
    trouble: Annotated[str, cut_at(5000)] = ""


class AgentProcess:
    """A fork of the supervisor that enters the plan's sandbox and then calls `work`. Its output is the launcher's log.

    `work` starts the ranks, and returns what the agent reports once they have ended. Raises OSError if the fork fails.
    """

    def __init__(self, plan: LaunchPlan, run: RunDir, work: Callable[[], AgentReport]) -> None:
        self.exit_code: int | None = None
        """The exit code, or minus the number of the signal that killed it. None while it runs."""
        self.report = AgentReport()
        self._plan = plan
        self._logs = (run.log("launcher", "stdout"), run.log("launcher", "stderr"))
        self._work = work
        self._reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            self.pid = fork.fork(lambda: self._run(writing), keep=(writing,))
        except OSError:
            os.close(self._reading)
            raise
        finally:
            os.close(writing)
        self._pidfd = os.pidfd_open(self.pid)

    @property
    def last_killed(self) -> int:
        return self.pid

    def descriptors(self) -> Sequence[int]:
        return [self._pidfd] if self.exit_code is None else []

    def handle_events(self) -> None:
        """Raises the OSError with which the agent failed."""
        if self.report.error:
            raise OSError(self.report.error, self.report.trouble)

    def child_exited(self, pid: int, code: int) -> None:
        if pid != self.pid:
            return
        self.exit_code = code
        with contextlib.suppress(BlockingIOError, ValueError):  # it was killed, or the report is none
            self.report = AgentReport.from_json(os.read(self._reading, _LONGEST_REPORT) or b"{}")

    def processes(self) -> list[ProcessIdentity]:
        return process.descendants(os.getpid())

    def send(self, target: ProcessIdentity, number: signal.Signals) -> bool:
        return process.send(target, number)

    def close(self) -> None:
        os.close(self._pidfd)
        os.close(self._reading)

    def _run(self, writing: int) -> NoReturn:
        fork.redirect(self._logs)
        fork.set_environment(self._plan)
        try:
            if self._plan.sandbox is not None:
                enter(self._plan.sandbox)
            report = self._work()
        except OSError as error:
            named = f": {error.filename}" if error.filename else ""
            report = AgentReport(error=error.errno or errno.EIO, trouble=f"{error.strerror or error}{named}")
        os.write(writing, report.to_json().encode())
        os._exit(1 if report.failures or report.error else 0)  # the exit of an interpreter with torch takes a second
