"""The supervisor of one attempt: a fork of the warm process, or `python -P -m worker.engines.local.supervisor DIR FD`.

It starts the launcher and watches over all its descendants. It ends them on request, at the time limit, after a stall,
or when the launcher has exited. Then it writes to `exit.json` how the attempt ended. It outlives the worker, and never
uses torch itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
import functools
import os
from pathlib import Path
import signal
import sys
import time

from setproctitle import setproctitle

from torchyard.contract.durations import format_duration
from torchyard.contract.events import Message
from torchyard.contract.job import EndReason
from torchyard.contract.records import ExitReport, LaunchPlan, ProcessIdentity, StopRequest
from torchyard.contract.rundir import RunDir, process_title
from torchyard.host import inspection
from torchyard.host.failpoints import failpoint
from torchyard.host.recordfiles import write_record
from torchyard.host.untrusted import append_untrusted, read_untrusted
from worker.engines.local.launchers import secrets
from worker.engines.local.launchers.base import Launch
from worker.engines.local.launchers.command import CommandAgent
from worker.engines.local.launchers.strict import StrictLaunch
from worker.engines.local.launchers.torchrun import TorchrunAgent
from worker.engines.local.launchers.warm import ForkedRanks
from worker.engines.local.supervisor.ending import launch_failure, log, write_report
from worker.engines.local.supervisor.ranks import running_ranks
from worker.engines.local.supervisor.shared_memory import SharedMemoryFiles
from worker.engines.local.supervisor.stalls import StallDetector
from worker.engines.local.supervisor.time_limit import TimeLimit
from worker.engines.local.supervisor.verdict import judge, raised
from worker.host import process
from worker.host.mask import Mask
from worker.host.proctable import TICKS
from worker.host.untrusted import remove_inside

_POLL_S = 0.2
_EARLIER_TRIES_S = 60
"""A supervisor that was started for the same attempt and killed, as nobody learned of it, is no older than this."""
_KILL_TIMEOUT = timedelta(seconds=30)
"""After so long, a killed process counts as unkillable. A process with much GPU memory needs some seconds to end."""
_LAUNCHES: dict[str, Callable[[LaunchPlan, RunDir, Mapping[str, str]], Launch]] = {
    "torchrun": TorchrunAgent,
    "warm": ForkedRanks,
    "command": CommandAgent,
}
_MESSAGES = {
    EndReason.CANCELLED: "cancelled by its owner",
    EndReason.PAUSED: "paused",
    EndReason.PREEMPTED: "preempted; the job goes back to the queue",
    EndReason.TIME_LIMIT: "the job's time limit was reached",
}


def main() -> None:
    """Supervises the attempt in the run directory `sys.argv[1]`, whose secrets are in the descriptor `sys.argv[2]`."""
    supervise(Path(sys.argv[1]).absolute(), secrets.read(int(sys.argv[2])) if len(sys.argv) > 2 else {})


def supervise(root: Path, values: Mapping[str, str]) -> None:
    """Supervises the attempt in the run directory `root`. Exits with 1 if it cannot write how the attempt ended.

    `values`: the secrets of its ranks, by variable.
    """
    inspection.forbid()
    run = RunDir(root)
    plan = read_untrusted(run.launch, LaunchPlan)
    if plan is None:
        sys.exit(f"there is no {run.launch}")
    me = process.identity(os.getpid())
    had_record = os.path.lexists(run.supervisor)
    other = read_untrusted(run.supervisor, ProcessIdentity) if had_record else None
    if me is None or os.path.lexists(run.exit) or (other is not None and process.is_alive(other)):
        sys.exit(f"{run.root} has or had a supervisor")
    setproctitle(process_title(plan.job_id, plan.attempt, "supervisor"))
    process.become_subreaper()
    write_record(run.supervisor, me)
    report = Supervisor(run, plan, values, is_first=not had_record).supervise()
    failpoint("supervisor.ended")
    write_report(run, Mask(values.values()).report(report))


class Supervisor:
    """Supervises one attempt, from the start of its launcher until all its processes have ended.

    `is_first`: whether no supervisor before this one has started anything of it.
    """

    def __init__(self, run: RunDir, plan: LaunchPlan, values: Mapping[str, str], *, is_first: bool = False) -> None:
        self._run = run
        self._plan = plan
        self._secrets = values
        self._is_alone = is_first and plan.sandbox is not None and plan.sandbox.own_pids
        """Whether all processes of the attempt are in the pid namespace that this one's launch has."""
        self._launch: Launch | None = None
        self._sigterm_received = False
        me = process.identity(os.getpid())
        self._since = me.start_time - _EARLIER_TRIES_S * TICKS if me is not None else 0
        """The start time before which no process of the attempt began."""
        self._limit = TimeLimit(time.monotonic(), plan.time_limit, plan.stop_grace)
        self._stalls = StallDetector(run, plan)
        shares_memory = plan.sandbox is None or not plan.sandbox.own_mounts
        self._shared_memory = SharedMemoryFiles() if shares_memory else None
        for number in (signal.SIGINT, signal.SIGHUP):  # a handler that does nothing: children would inherit SIG_IGN
            signal.signal(number, _do_nothing)
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def supervise(self) -> ExitReport:
        """Runs the attempt and returns how it ended. When it returns or raises, all processes have ended."""
        launch: Launch | None = None
        try:
            failpoint("supervisor.launch.before")
            launch = self._launch = _launch_of(self._plan)(self._plan, self._run, self._secrets)
            failpoint("supervisor.launch.after")
        except OSError as error:
            self._kill_all()
            return launch_failure(f"the launcher cannot be started: {error}", error)
        try:
            report = self._watch(launch)
        except OSError as error:
            report = launch_failure(f"the launcher failed: {error}", error)
        finally:
            self._kill_all()
            launch.close()
        if report is not None:
            return report
        return judge(
            self._run,
            launcher_exit=launch.exit_code or 0,
            world_size=self._plan.world_size,
            failures=launch.failures(),
            command=self._plan.launcher == "command",
        )

    def _watch(self, launch: Launch) -> ExitReport | None:
        """Waits until the end of the attempt is decided. Returns None if the launcher has exited by itself."""
        while not self._wait_for_exit(launch):
            request = self._read_stop_request()
            if request is None and time.monotonic() >= self._limit.stop_at:
                request = StopRequest(reason=EndReason.TIME_LIMIT, grace=self._limit.grace)
                self._write_stop_request(request)
            if request is not None:
                return self._stop(launch, request)
            if self._stalls.stalled():
                return self._stalls.report(self._ranks(), send=launch.send)
        # Ranks read the stop request themselves, so they may exit before this loop reads it.
        request = self._read_stop_request() if launch.exit_code == 0 else None
        return self._stop(launch, request) if request is not None else None

    def _wait_for_exit(self, launch: Launch) -> bool:
        """Waits a moment. Reaps the children that have ended. Returns whether the launcher has exited."""
        process.readable(launch.descriptors(), timeout=_POLL_S)
        if self._shared_memory is not None:
            self._shared_memory.look(lambda: process.descendants(os.getpid()))
        self._reap()
        launch.handle_events()
        return launch.exit_code is not None

    def _reap(self) -> None:
        for pid, code in process.reap_children():
            if self._launch is not None:
                self._launch.child_exited(pid, code)

    def _read_stop_request(self) -> StopRequest | None:
        exists = os.path.lexists(self._run.stop)
        if self._sigterm_received and not exists:
            request = StopRequest(reason=EndReason.PREEMPTED, grace=self._plan.stop_grace)
            self._write_stop_request(request)
            return request
        if not exists:
            return None
        request = read_untrusted(self._run.stop, StopRequest)
        if request is None:
            log(f"{self._run.stop} cannot be read")
            return StopRequest(reason=EndReason.KILLED, grace=self._plan.stop_grace)
        return request

    def _write_stop_request(self, request: StopRequest) -> None:
        """Writes the request for the ranks. After an error of the disk, they only get the signal."""
        try:
            write_record(self._run.stop, request)
        except OSError as error:
            log(f"{self._run.stop} cannot be written: {error}")

    def _stop(self, launch: Launch, request: StopRequest) -> ExitReport | None:
        """Sends SIGTERM to the ranks and waits for their grace, or until the time limit.

        A later request can change the reason and shorten the grace. Returns None if the program finishes by itself
        meanwhile, unless it was cancelled.
        """
        requested_at = time.monotonic()
        deadline = self._limit.deadline(requested_at, request.grace)
        signalled: set[int] = set()
        while time.monotonic() < deadline and ((ranks := self._ranks()) or self._finished()):
            for number, rank in ranks.items():
                if rank.pid not in signalled and not os.path.lexists(self._run.finished(number)):
                    signalled.add(rank.pid)
                    launch.send(rank, signal.SIGTERM)
            if self._wait_for_exit(launch):
                break
            latest = self._read_stop_request() or request
            if latest != request:
                request = latest
                deadline = min(deadline, time.monotonic() + request.grace.total_seconds())
        if launch.exit_code == 0 and request.reason is not EndReason.CANCELLED and self._finished():
            return None
        message = _MESSAGES.get(request.reason, "the attempt was asked to stop")
        if time.monotonic() >= deadline:
            message += f"; killed after a grace of {format_duration(timedelta(seconds=round(deadline - requested_at)))}"
        error = raised(self._run, world_size=self._plan.world_size) or ExitReport(reason=request.reason)
        message += f"; {error.message}" if error.message else ""
        return replace(error, reason=request.reason, message=message, exit_code=None)

    def _finished(self) -> bool:
        return all(os.path.lexists(self._run.finished(rank)) for rank in range(self._plan.world_size))

    def _ranks(self) -> dict[int, ProcessIdentity]:
        """Returns the ranks that run. A record that names a process outside our tree is ignored."""
        return running_ranks(self._run, self._processes(), world_size=self._plan.world_size)

    def _processes(self) -> list[ProcessIdentity]:
        own = process.descendants(os.getpid())
        return own if self._launch is None else [*own, *self._launch.processes()]

    def _kill_all(self) -> None:
        """Kills all processes of the attempt until none is left: the one that the ranks need comes last."""
        self._reap()
        if not self._kernel_has_ended_all():
            self._search_and_kill_all()
        self._remove_temporary_files()

    def _kernel_has_ended_all(self) -> bool:
        """Whether the kernel has ended all processes of the attempt, as it does with the first one of a namespace."""
        exited = self._launch is not None and self._launch.exit_code is not None
        return self._is_alone and exited and not process.has_children()

    def _search_and_kill_all(self) -> None:
        last_killed = self._launch.last_killed if self._launch is not None else None
        send = self._launch.send if self._launch is not None else process.send

        def find_all() -> list[ProcessIdentity]:
            self._reap()
            plan, me = self._plan, os.getpid()
            below = process.find(plan.job_id, plan.attempt, since=self._since, below=(me,))
            beside = self._launch.processes() if self._launch is not None else []
            found = {item.pid: item for item in (*below, *beside)}
            return sorted(found.values(), key=lambda item: item.pid == last_killed)

        if self._shared_memory is not None:
            self._shared_memory.look(find_all, at_once=True)
        kill_all = functools.partial(process.kill_all, find_all, send_by=send)
        deadline, warned = time.monotonic() + _KILL_TIMEOUT.total_seconds(), False
        unkillable = kill_all(timeout=_KILL_TIMEOUT)
        if unkillable:
            self._warn_owner(process.describe_unkillable(unkillable))
            kill_all(timeout=None)
        while process.kill_children():
            kill_all(timeout=_KILL_TIMEOUT)
            if not warned and time.monotonic() > deadline:
                self._warn_owner("processes of the attempt fork without end, and keep its devices until they end")
                warned = True
        self._reap()

    def _remove_temporary_files(self) -> None:
        """Removes what the processes, which have ended, left outside the run directory, as far as possible."""
        if self._shared_memory is not None:
            self._shared_memory.remove()
        if self._plan.sandbox is not None:
            folder = Path(self._plan.sandbox.temporary)
            remove_inside(folder.parent, folder.name)

    def _warn_owner(self, text: str) -> None:
        """Sends the job's owner a message, by an event after those of rank 0, which has ended."""
        log(text)
        line = Message(time=time.time_ns() // 1000, level="warning", text=text).to_json()
        append_untrusted(self._run.events, f"\n{line}\n".encode())  # rank 0 may have been killed inside a line

    def _on_sigterm(self, *_: object) -> None:
        self._sigterm_received = True


def _launch_of(plan: LaunchPlan) -> Callable[[LaunchPlan, RunDir, Mapping[str, str]], Launch]:
    strict = plan.sandbox is not None and plan.sandbox.strict is not None
    return StrictLaunch if strict else _LAUNCHES[plan.launcher]


def _do_nothing(*_: object) -> None:
    pass
