"""The agent of an attempt: the process between supervisor and ranks, which enters the sandbox before it starts them."""

from collections.abc import Callable, Sequence
import contextlib
from dataclasses import dataclass, field
import errno
import os
import signal
import struct
from typing import Annotated, NoReturn

from setproctitle import setproctitle

from torchyard.contract.attempts.records import ExitCode, LaunchPlan, ProcessIdentity
from torchyard.contract.attempts.rundir import RunDir, process_title
from torchyard.contract.wire.codec import Record, at_most, between, cut_at
from torchyard.host import inspection
from worker.engines.local.launchers import fork
from worker.host import process
from worker.sandbox import entry, init, privileges

_LONGEST_REPORT = 1 << 16
_NUMBER = struct.Struct("=i")


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

    `work` starts the ranks, and returns what the agent reports once they have ended. `reaps`: whether it reaps all that
    loses its parent: then the agent itself can be the first process of a pid namespace. `keep`: descriptors that it
    gets. Raises OSError if the fork fails.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        run: RunDir,
        work: Callable[[], AgentReport],
        *,
        reaps: bool = False,
        keep: Sequence[int] = (),
    ) -> None:
        self.exit_code: int | None = None
        """The exit code, or minus the number of the signal that killed it. None while it runs."""
        self.report = AgentReport()
        self.plan = plan
        self._run_dir = run
        self._work = work
        self._reaps = reaps
        self._reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._exits, exit_writing = os.pipe2(os.O_CLOEXEC)
        logs: list[int] = []
        try:
            # Opened here, as no mount with a file that is open for writing becomes read-only.
            logs = fork.open_logs([run.log(run.launcher, name) for name in ("stdout", "stderr")])
            self.pid = fork.fork(
                lambda: self._run(writing, exit_writing, logs),
                keep=(writing, exit_writing, *logs, *keep),
                make=lambda: entry.fork(plan.sandbox),
            )
            """The process whose end is that of the agent: itself, or the first process of its pid namespace."""
        except OSError:
            self._close_pipes()
            raise
        finally:
            for descriptor in (writing, exit_writing, *logs):
                os.close(descriptor)
        self._pidfd = os.pidfd_open(self.pid)

    @property
    def last_killed(self) -> int:
        return self.pid

    def descriptors(self) -> Sequence[int]:
        return [self._pidfd] if self.exit_code is None else []

    def handle_events(self) -> None:
        """Raises the OSError with which the agent failed."""
        if self.exit_code is None and self._stops() and process.readable([self._exits]):
            # The agent has ended; the init process of its namespace waits for the remaining processes.
            exit_code = self._read_number()
            if exit_code is not None:
                self._note_end(exit_code)
        if self.report.error:
            raise OSError(self.report.error, self.report.trouble)

    def child_exited(self, pid: int, code: int) -> None:
        if pid != self.pid or self.exit_code is not None:
            return
        exit_code = self._read_number()  # nothing writes it any more
        self._note_end(code if exit_code is None else exit_code)

    def processes(self) -> list[ProcessIdentity]:
        return []  # the supervisor is the parent of what loses its own

    def send(self, target: ProcessIdentity, number: signal.Signals) -> bool:
        return process.send(target, number)

    def close(self) -> None:
        os.close(self._pidfd)
        self._close_pipes()

    @property
    def _is_first(self) -> bool:
        """Whether the agent is the first process of a pid namespace."""
        sandbox = self.plan.sandbox
        return sandbox is not None and sandbox.own_pids and not entry.forks(sandbox, reaps=self._reaps)

    def _stops(self) -> bool:
        return os.path.lexists(self._run_dir.stop)

    def _note_end(self, exit_code: int) -> None:
        self.exit_code = exit_code
        with contextlib.suppress(BlockingIOError, ValueError):  # it was killed, or the report is none
            self.report = AgentReport.from_json(os.read(self._reading, _LONGEST_REPORT) or b"{}")

    def _close_pipes(self) -> None:
        os.close(self._reading)
        os.close(self._exits)

    def _read_number(self) -> int | None:
        """Waits for the next number. Returns None if it does not come, as its writers have ended."""
        content = os.read(self._exits, _NUMBER.size)
        return _NUMBER.unpack(content)[0] if content else None

    def _run(self, writing: int, exits: int, logs: Sequence[int]) -> NoReturn:
        fork.redirect(logs)
        try:
            fork.set_environment(self.plan)
            self._set_title("init")
            self._enter(exits)
            self._set_title("agent")
            report = self._work()
        except OSError as error:
            named = f": {error.filename}" if error.filename else ""
            report = AgentReport(error=error.errno or errno.EIO, trouble=f"{error.strerror or error}{named}")
        os.write(writing, report.to_json().encode())
        code = 1 if report.failures or report.error else 0
        if self._is_first and self._stops() and process.has_children():
            os.write(exits, _NUMBER.pack(code))
            init.reap_all()
        os._exit(code)  # the exit of an interpreter with torch takes a second

    def _enter(self, exits: int) -> None:
        """Enters the sandbox, with a pipe to which the namespace's first process may write the exit code.

        The agent closes that pipe, as its job could write to it, unless it is that process itself: nobody inspects it.
        """

        def write(number: int) -> None:
            os.write(exits, _NUMBER.pack(number))

        if self.plan.sandbox is None:
            inspection.permit()  # as of any program, and so the supervisor sees what they hold in `/dev/shm`
            privileges.raise_file_limit()
        else:
            entry.enter(self.plan.sandbox, reaps=self._reaps, ended=write, stops=self._stops)
        if not self._is_first:
            os.close(exits)

    def _set_title(self, role: str) -> None:
        setproctitle(process_title(self.plan.job_id, self.plan.attempt, role))
