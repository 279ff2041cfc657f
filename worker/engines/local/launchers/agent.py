"""The agent of an attempt: the process between supervisor and ranks, which enters the sandbox before it starts them."""

from collections.abc import Callable, Mapping, Sequence
import contextlib
from dataclasses import dataclass, field
import errno
import os
import signal
import struct
import sys
from typing import Annotated, NoReturn

from setproctitle import setproctitle

from torchyard.contract.attempts.records import ExitCode, LaunchPlan, ProcessIdentity
from torchyard.contract.attempts.rundir import RunDir, process_title
from torchyard.contract.wire.codec import Record, at_most, between, cut_at
from torchyard.host import inspection
from worker.engines.local.entrance import Entrance
from worker.engines.local.launchers import fork
from worker.host import forks, process
from worker.sandbox import entry, init, privileges
from worker.sandbox.door.beginning import fork_door
from worker.sandbox.door.door import Place

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


@dataclass(frozen=True, kw_only=True)
class Work:
    """What an agent does in its sandbox."""

    run: Callable[[Callable[[], None]], AgentReport]
    """Starts the ranks. Returns what the agent reports once they have ended. It calls its argument, which forks the
    door, before this process has threads or becomes a program."""
    variables: Callable[[int], Mapping[str, str]]
    """Returns all variables of a rank, for a program that its user starts beside it. Raises OSError."""


class AgentProcess:
    """A fork of the supervisor that enters the plan's sandbox, where `prepare` tells it its work. Its output is the
    launcher's log.

    `reaps`: whether the agent reaps all that loses its
    parent: then it can be the first process of a pid namespace itself. `keep`: descriptors that it gets. Raises OSError
    if the fork fails.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        run: RunDir,
        prepare: Callable[[], Work],
        *,
        reaps: bool = False,
        keep: Sequence[int] = (),
    ) -> None:
        self.exit_code: int | None = None
        """The exit code, or minus the number of the signal that killed it. None while it runs."""
        self.report = AgentReport()
        self.plan = plan
        self._run_dir = run
        self._prepare = prepare
        self._reaps = reaps
        self._entrance = Entrance(run) if plan.node is None else None
        self._door = None if self._entrance is None else self._entrance.pair()
        self._reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._exits, exit_writing = os.pipe2(os.O_CLOEXEC)
        logs: list[int] = []
        try:
            # Opened here, as no mount with a file that is open for writing becomes read-only.
            logs = fork.open_logs([run.log(run.launcher, name) for name in ("stdout", "stderr")])
            self.pid = forks.fork(
                lambda: self._run(writing, exit_writing, logs),
                keep=(writing, exit_writing, *logs, *keep, *([] if self._door is None else [self._door.fileno()])),
                make=lambda: entry.fork(plan.sandbox),
            )
            """The process whose end is that of the agent: itself, or the first process of its pid namespace."""
        except OSError:
            self._close_pipes()
            if self._entrance is not None:
                self._entrance.close()
            raise
        finally:
            for descriptor in (writing, exit_writing, *logs):
                os.close(descriptor)
            if self._door is not None:
                self._door.close()
        self._pidfd = os.pidfd_open(self.pid)

    @property
    def last_killed(self) -> int:
        return self.pid

    def descriptors(self) -> Sequence[int]:
        own = [self._pidfd] if self.exit_code is None else []
        return [*own, *(self._entrance.descriptors() if self._entrance is not None else ())]

    def handle_events(self) -> None:
        """Raises the OSError with which the agent failed."""
        if self.exit_code is None and self._stops() and process.readable([self._exits]):
            # The agent has ended; the init process of its namespace waits for the remaining processes.
            exit_code = self._read_number()
            if exit_code is not None:
                self._note_end(exit_code)
        if self._entrance is not None:
            self._entrance.let_in()
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

    def stop(self) -> None:
        if self._entrance is not None:
            self._entrance.stop()

    def close(self) -> None:
        if self._entrance is not None:
            self._entrance.close()
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
        if self._entrance is not None:
            self._entrance.close()  # no program of a user lasts longer than the ranks
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
            work = self._prepare()
            with contextlib.ExitStack() as stack:
                report = work.run(lambda: self._fork_door(work.variables, stack))
        except OSError as error:
            named = f": {error.filename}" if error.filename else ""
            report = AgentReport(error=error.errno or errno.EIO, trouble=f"{error.strerror or error}{named}")
        os.write(writing, report.to_json().encode())
        code = 1 if report.failures or report.error else 0
        if self._is_first and self._stops() and process.has_children():
            os.write(exits, _NUMBER.pack(code))
            init.reap_all()
        os._exit(code)  # the exit of an interpreter with torch takes a second

    def _fork_door(self, variables: Callable[[int], Mapping[str, str]], stack: contextlib.ExitStack) -> None:
        """Forks the door, which ends with `stack`, or with the program that this process becomes."""
        if self._door is None:
            return
        if self._reaps:
            ends, lasts = os.pipe2(os.O_CLOEXEC)
            stack.callback(os.close, lasts)
        else:
            ends = os.pidfd_open(os.getpid())
        first = os.getpid() if self._is_first else os.getppid()
        place = Place(job_id=self.plan.job_id, attempt=self.plan.attempt, variables=variables, first=first)
        try:
            fork_door(place, self._door, ends=ends, is_child=self._reaps)
        except OSError as error:  # the ranks do without
            print(f"nothing can be started beside the ranks: {error}", file=sys.stderr)  # noqa: T201 it is the log
        os.close(ends)
        self._door.close()

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
