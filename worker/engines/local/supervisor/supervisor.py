"""The supervisor of one attempt: a fork of the warm process, or `python -P -m worker.engines.local.supervisor DIR FD`.

It starts the launcher and watches over all its descendants. It ends them on request, at the time limit, after a stall,
or when the launcher has exited. Then it writes to `exit.json` how the attempt ended. It outlives the worker, and never
uses torch itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
import os
from pathlib import Path
import signal
import socket
import sys
import time

from setproctitle import setproctitle

from torchyard.contract.attempts.records import ExitReport, LaunchPlan, ProcessIdentity, StopRequest
from torchyard.contract.attempts.rundir import Env, RunDir, process_title
from torchyard.contract.states import CANCELLED_BY_OWNER, DID_NOT_USE_GPUS, EndReason
from torchyard.contract.wire.units import format_duration
from torchyard.host import inspection
from torchyard.host.failpoints import failpoint
from torchyard.host.recordfiles import write_record
from torchyard.host.untrusted import read_untrusted
from worker.engines.local.launchers import secrets
from worker.engines.local.launchers.base import Launch
from worker.engines.local.launchers.command import CommandAgent
from worker.engines.local.launchers.strict import StrictLaunch
from worker.engines.local.launchers.torchrun import TorchrunAgent
from worker.engines.local.launchers.warm import ForkedRanks
from worker.engines.local.supervisor import temporaries
from worker.engines.local.supervisor.ending import launch_failure, log, write_report
from worker.engines.local.supervisor.processes import AttemptProcesses
from worker.engines.local.supervisor.rank_ends import RankEnds
from worker.engines.local.supervisor.ranks import running_ranks
from worker.engines.local.supervisor.stalls import StallDetector
from worker.engines.local.supervisor.stopping import Stopping
from worker.engines.local.supervisor.time_limit import TimeLimit
from worker.engines.local.supervisor.verdict import judge, raised
from worker.host import process
from worker.host.mask import Mask

_POLL_S = 0.2
_LAUNCHER_S = 2.0
"""How long a launcher whose programs have left at a stop may take to tell how they exited."""
_LAUNCHES: dict[str, Callable[[LaunchPlan, RunDir, Mapping[str, str]], Launch]] = {
    "torchrun": TorchrunAgent,
    "warm": ForkedRanks,
    "command": CommandAgent,
}
_MESSAGES = {
    EndReason.CANCELLED: CANCELLED_BY_OWNER,
    EndReason.PAUSED: "paused",
    EndReason.PREEMPTED: "preempted; the job goes back to the queue",
    EndReason.TIME_LIMIT: "the job's time limit was reached",
    EndReason.IDLE_TIMEOUT: DID_NOT_USE_GPUS,
}


def main() -> None:
    """Supervises the attempt in the run directory `sys.argv[1]`, whose secrets are in the descriptor `sys.argv[2]`."""
    supervise(RunDir(Path(sys.argv[1]).absolute()), secrets.read(int(sys.argv[2])) if len(sys.argv) > 2 else {})


def supervise(run: RunDir, values: Mapping[str, str], *, listener: socket.socket | None = None) -> None:
    """Supervises the attempt in `run`, or its part on one node. Exits with 1 if it cannot write how that ended.

    `values`: the secrets of its ranks, by variable. `listener`: on node 0 of several, the socket where all ranks meet.
    """
    inspection.forbid()
    plan = read_untrusted(run.launch, LaunchPlan)
    if plan is None:
        sys.exit(f"there is no {run.launch}")
    me = process.identity(os.getpid())
    had_record = os.path.lexists(run.supervisor)
    other = read_untrusted(run.supervisor, ProcessIdentity) if had_record else None
    if me is None or os.path.lexists(run.exit) or (other is not None and process.is_alive(other)):
        sys.exit(f"{run.ctl} has or had a supervisor")
    role = "supervisor" if plan.node is None else f"supervisor of node {plan.node.rank}"
    setproctitle(process_title(plan.job_id, plan.attempt, role))
    process.become_subreaper()
    write_record(run.supervisor, me)
    report = Supervisor(run, plan, values, is_first=not had_record, listener=listener).supervise()
    failpoint("supervisor.ended")
    write_report(run, Mask(values.values()).report(report))


class Supervisor:
    """Supervises one attempt, from the start of its launcher until all its processes have ended.

    `is_first`: whether no supervisor before this one has started anything of it. `listener`: as of `supervise`.
    """

    def __init__(
        self,
        run: RunDir,
        plan: LaunchPlan,
        values: Mapping[str, str],
        *,
        is_first: bool = False,
        listener: socket.socket | None = None,
    ) -> None:
        self._run = run
        self._plan = plan
        self._secrets = values
        self._listener = listener
        self._sigterm_received = False
        self._processes = AttemptProcesses(run, plan, reap=self._reap, is_first=is_first)
        self._limit = TimeLimit(time.monotonic(), plan.time_limit, plan.stop_grace)
        self._stalls = StallDetector(run, plan)
        self._ends = None if plan.node is None else RankEnds(run, plan.node)
        for number in (signal.SIGINT, signal.SIGHUP):  # a handler that does nothing: children would inherit SIG_IGN
            signal.signal(number, _do_nothing)
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def supervise(self) -> ExitReport:
        """Runs the attempt and returns how it ended. When it returns or raises, all processes have ended."""
        launch: Launch | None = None
        try:
            failpoint("supervisor.launch.before")
            temporaries.begin(self._run, self._plan)
            launch = self._processes.launch = self._start()
            failpoint("supervisor.launch.after")
        except OSError as error:
            self._end_all()
            return launch_failure(f"the launcher cannot be started: {error}", error)
        try:
            report = self._watch(launch)
        except OSError as error:
            report = launch_failure(f"the launcher failed: {error}", error)
        finally:
            self._end_all()
            launch.close()
        if report is not None:
            return report
        if launch.exit_code == 0 and self._has_paused():
            return ExitReport(reason=EndReason.PAUSED, message=_MESSAGES[EndReason.PAUSED], exited_well=True)
        return judge(
            self._run,
            launcher_exit=launch.exit_code or 0,
            ranks=self._plan.ranks,
            failures=launch.failures(),
            command=self._plan.launcher == "command",
        )

    def _start(self) -> Launch:
        listener = self._listener
        if listener is not None and self._plan.launcher == "torchrun":
            with listener:  # once torchrun has ended, nobody may wait at it
                return TorchrunAgent(self._plan, self._run, self._secrets, listener=listener)
        if listener is not None:  # a command listens there itself
            listener.close()
        return _launch_of(self._plan)(self._plan, self._run, self._secrets)

    def _watch(self, launch: Launch) -> ExitReport | None:
        """Waits until the end of the attempt is decided. Returns None if the launcher has exited by itself."""
        while not self._wait_for_exit(launch):
            request = self._read_stop_request()
            if request is None and time.monotonic() >= self._limit.stop_at:
                request = StopRequest(reason=EndReason.TIME_LIMIT, grace=self._limit.grace)
                self._write_stop_request(request)
            if request is not None and request.reason is not EndReason.HANG:
                return self._stop(launch, request)
            if request is not None or self._stalls.stalled():
                return self._stalls.report(self._ranks(), send=launch.send)
        # Ranks read the stop request themselves, so they may exit before this loop reads it.
        # And a cluster sends SIGTERM to all processes of a node, the launcher included.
        request = self._read_stop_request() if launch.exit_code == 0 or self._sigterm_received else None
        return self._stop(launch, request) if request is not None else None

    def _wait_for_exit(self, launch: Launch) -> bool:
        """Waits a moment. Reaps the children that have ended. Returns whether the launcher has exited."""
        process.readable(launch.descriptors(), timeout=_POLL_S)
        self._processes.look()
        self._reap()
        if self._ends is not None:
            self._ends.look(self._ranks)
        launch.handle_events()
        return launch.exit_code is not None

    def _reap(self) -> None:
        for pid, code in process.reap_children():
            if self._processes.launch is not None:
                self._processes.launch.child_exited(pid, code)

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
        """Asks the programs to stop, and waits for their grace, or until the time limit.

        A later request can change the reason and shorten the grace. Returns None if the program finishes by itself
        meanwhile, unless it was cancelled.
        """
        launch.stop()
        requested_at = time.monotonic()
        deadline = self._limit.deadline(requested_at, request.grace)
        stopping = Stopping(launch.send)
        while (now := time.monotonic()) < deadline:
            ranks = self._ranks()
            finished = {number for number in ranks if os.path.lexists(self._run.finished(number))}
            goes_on = stopping.tell(ranks, finished=finished, seconds=deadline - now)
            if not (goes_on or ranks or self._finished() or self._others_may_run()):
                break
            if self._wait_for_exit(launch) and not goes_on:
                break
            latest = self._read_stop_request() or request
            if latest != request:
                request = latest
                deadline = min(deadline, time.monotonic() + request.grace.total_seconds())
        last = min(deadline, time.monotonic() + _LAUNCHER_S)
        while launch.exit_code is None and time.monotonic() < last:
            self._wait_for_exit(launch)
        if launch.exit_code == 0 and request.reason is not EndReason.CANCELLED and self._finished():
            return None
        message = _MESSAGES.get(request.reason, "the attempt was asked to stop")
        if request.reason is EndReason.TIME_LIMIT and request.grace:
            message += f", of which the last {format_duration(request.grace)} are the grace of the stop"
        if time.monotonic() >= deadline:
            message += f"; killed after a grace of {format_duration(timedelta(seconds=round(deadline - requested_at)))}"
        error = raised(self._run, ranks=self._plan.ranks) or ExitReport(reason=request.reason)
        message += f"; {error.message}" if error.message else ""
        exited_well = launch.exit_code == 0
        return replace(error, reason=request.reason, message=message, exit_code=None, exited_well=exited_well)

    def _has_paused(self) -> bool:
        """Whether the ranks have left where the attempt was to pause. They alone cannot say so."""
        return Env.PAUSE_AT in self._plan.env and os.path.lexists(self._run.paused) and not self._finished()

    def _finished(self) -> bool:
        return all(os.path.lexists(self._run.finished(rank)) for rank in self._plan.ranks)

    def _others_may_run(self) -> bool:
        """Whether ranks of other nodes may still need this node's launcher, which has the store where they meet."""
        return self._ends is not None and self._ends.others_may_run()

    def _ranks(self) -> dict[int, ProcessIdentity]:
        """Returns the ranks that run. A record that names a process outside our tree is ignored."""
        return running_ranks(self._run, self._processes.running(), ranks=self._plan.ranks)

    def _end_all(self) -> None:
        self._processes.kill_all()
        if self._ends is not None:
            self._ends.say_all()

    def _on_sigterm(self, *_: object) -> None:
        self._sigterm_received = True


def _launch_of(plan: LaunchPlan) -> Callable[[LaunchPlan, RunDir, Mapping[str, str]], Launch]:
    strict = plan.sandbox is not None and plan.sandbox.strict is not None
    return StrictLaunch if strict else _LAUNCHES[plan.launcher]


def _do_nothing(*_: object) -> None:
    pass
