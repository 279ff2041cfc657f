"""The supervisor of one attempt: a fork of the warm process, or `python -P -m worker.engines.local.supervisor RUN_DIR`.

It starts the launcher, keeps every process that descends from it, ends them all (asked to, at the time limit, at a
stall, or because the launcher has left), and then says in `exit.json` how the attempt ended. It outlives the worker.
It never uses torch itself.
"""

from collections.abc import Callable
import contextlib
from dataclasses import replace
from datetime import timedelta
import os
from pathlib import Path
import signal
import sys
import time

from setproctitle import setproctitle

from torchyard.contract.disk import PASSING, retry_while_unavailable
from torchyard.contract.durations import format_duration
from torchyard.contract.events import Message
from torchyard.contract.failpoints import failpoint
from torchyard.contract.job import EndReason
from torchyard.contract.recordfiles import write_record
from torchyard.contract.records import ExitReport, LaunchPlan, ProcessIdentity, StopRequest
from torchyard.contract.rundir import RunDir, process_title
from torchyard.contract.untrusted import append_untrusted, read_untrusted
from worker.engines.local import process
from worker.engines.local.launchers.base import Launch
from worker.engines.local.launchers.torchrun import Agent
from worker.engines.local.launchers.warm import Forks
from worker.engines.local.stalls import StallWatch
from worker.engines.local.verdict import judge, raised

_POLL_S = 0.2
_STUBBORN = timedelta(seconds=30)  # for a SIGKILL to be obeyed: a GPU's memory takes its time
_REPORT_S = 600.0  # for a disk to have room again
_LAUNCHES: dict[str, Callable[[LaunchPlan, RunDir], Launch]] = {"torchrun": Agent, "warm": Forks}
_MESSAGES = {
    EndReason.CANCELLED: "cancelled by its owner",
    EndReason.PAUSED: "paused",
    EndReason.PREEMPTED: "the worker was asked to stop; the job goes back to the queue",
    EndReason.TIME_LIMIT: "the job's time limit was reached",
}


def main() -> None:
    """Supervises the attempt in the run directory `sys.argv[1]`."""
    supervise(Path(sys.argv[1]).absolute())


def supervise(root: Path) -> None:
    """Supervises the attempt in the run directory `root`. Exits with 1 where it cannot say how it ended."""
    run = RunDir.found(root)
    plan = read_untrusted(run.launch, LaunchPlan)
    if plan is None:
        sys.exit(f"there is no {run.launch}")
    me = process.identity(os.getpid())
    other = read_untrusted(run.supervisor, ProcessIdentity)
    if me is None or os.path.lexists(run.exit) or (other is not None and process.is_alive(other)):
        sys.exit(f"{run.root} has, or had, a supervisor")
    setproctitle(process_title(plan.job_id, plan.attempt, "supervisor"))
    process.become_subreaper()
    write_record(run.supervisor, me)
    report = Supervisor(run, plan).supervise()
    failpoint("supervisor.ended")
    _record(run, report)


class Supervisor:
    """One attempt, from the start of its launcher until nothing of it is left."""

    def __init__(self, run: RunDir, plan: LaunchPlan) -> None:
        self._run = run
        self._plan = plan
        self._launch: Launch | None = None
        self._told_to_leave = False
        self._stalls = StallWatch(run, plan)
        for number in (signal.SIGINT, signal.SIGHUP):  # handled, not ignored: what is ignored, children inherit
            signal.signal(number, _ignore)
        signal.signal(signal.SIGTERM, self._leave)

    def supervise(self) -> ExitReport:
        """Runs the attempt and says how it ended. When it returns, or raises, no process of the attempt is left."""
        launch: Launch | None = None
        try:
            failpoint("supervisor.launch.before")
            launch = self._launch = _LAUNCHES[self._plan.launcher](self._plan, self._run)
            failpoint("supervisor.launch.after")
        except OSError as error:
            self._end()
            reason = EndReason.WORKER_LOST if error.errno in PASSING else EndReason.LAUNCH_FAILED
            return ExitReport(reason=reason, message=f"the launcher cannot be started: {error}")
        try:
            report = self._watch(launch)
        finally:
            self._end()
            launch.close()
        if report is not None:
            return report
        return judge(
            self._run, launcher_exit=launch.exit or 0, world_size=self._plan.world_size, deaths=launch.deaths()
        )

    def _watch(self, launch: Launch) -> ExitReport | None:
        """Until the launcher has left (None: of its own accord) or the attempt's end is decided."""
        time_limit = time.monotonic() + self._plan.time_limit.total_seconds()
        while not self._gone(launch):
            request = self._requested()
            if request is None and time.monotonic() >= time_limit:
                request = StopRequest(reason=EndReason.TIME_LIMIT, grace=self._plan.stop_grace)
                self._publish(request)
            if request is not None:
                return self._stop(launch, request)
            if self._stalls.stalled():
                return self._stalls.report(self._ranks())
        # Ranks read the stop request themselves: they may exit before this loop reads it.
        request = self._requested() if launch.exit == 0 else None
        return self._stop(launch, request) if request is not None else None

    def _gone(self, launch: Launch) -> bool:
        """Waits a moment; True as soon as the launcher has left. Reaps whoever else has ended."""
        process.readable(launch.descriptors(), timeout=_POLL_S)
        launch.tend()
        self._reap()
        return launch.exit is not None

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if self._launch is not None:
                self._launch.note(pid, os.waitstatus_to_exitcode(status))

    def _requested(self) -> StopRequest | None:
        there = os.path.lexists(self._run.stop)
        if self._told_to_leave and not there:
            request = StopRequest(reason=EndReason.PREEMPTED, grace=self._plan.stop_grace)
            self._publish(request)
            return request
        if not there:
            return None
        request = read_untrusted(self._run.stop, StopRequest)
        if request is None:
            _say(f"{self._run.stop} cannot be read")
            return StopRequest(reason=EndReason.KILLED, grace=self._plan.stop_grace)
        return request

    def _publish(self, request: StopRequest) -> None:
        """Lets the ranks know; where the disk refuses, the signal must do."""
        try:
            write_record(self._run.stop, request)
        except OSError as error:
            _say(f"{self._run.stop} cannot be written: {error}")

    def _stop(self, launch: Launch, request: StopRequest) -> ExitReport | None:
        """SIGTERM to the ranks, and the grace for them to leave. A later request may change the reason and cut it.

        None where the program comes to its own end meanwhile: it has finished, unless it was cancelled.
        """
        asked = time.monotonic()
        deadline = asked + request.grace.total_seconds()
        told: set[int] = set()
        while time.monotonic() < deadline and ((ranks := self._ranks()) or self._finished()):
            for number, rank in ranks.items():
                if rank.pid not in told and not os.path.lexists(self._run.finished(number)):
                    told.add(rank.pid)
                    process.send(rank, signal.SIGTERM)
            if self._gone(launch):
                break
            latest = self._requested() or request
            if latest != request:
                request = latest
                deadline = min(deadline, time.monotonic() + request.grace.total_seconds())
        if launch.exit == 0 and request.reason is not EndReason.CANCELLED and self._finished():
            return None
        message = _MESSAGES.get(request.reason, "the attempt was asked to stop")
        if time.monotonic() >= deadline:
            message += f"; killed after a grace of {format_duration(timedelta(seconds=round(deadline - asked)))}"
        error = raised(self._run, world_size=self._plan.world_size) or ExitReport(reason=request.reason)
        message += f"; {error.message}" if error.message else ""
        return replace(error, reason=request.reason, message=message, exit_code=None)

    def _finished(self) -> bool:
        return all(os.path.lexists(self._run.finished(rank)) for rank in range(self._plan.world_size))

    def _ranks(self) -> dict[int, ProcessIdentity]:
        """The ranks that run. A record that names a process outside our tree is not believed."""
        ours = process.descendants(os.getpid())
        said = {
            rank: read_untrusted(self._run.ranks / f"{rank}.json", ProcessIdentity)
            for rank in range(self._plan.world_size)
        }
        return {rank: identity for rank, identity in said.items() if identity is not None and identity in ours}

    def _end(self) -> None:
        """SIGKILLs all that is left, what the ranks need last, for as long as anything is."""
        keeper = self._launch.keeper if self._launch is not None else None

        def left() -> list[ProcessIdentity]:
            self._reap()
            found = {
                item.pid: item
                for item in (
                    *process.descendants(os.getpid()),
                    *process.find(self._plan.job_id, self._plan.attempt),
                )
            }
            return sorted(found.values(), key=lambda item: item.pid == keeper)

        stubborn = process.kill_all(left, timeout=_STUBBORN)
        if stubborn:
            self._tell(process.stubborn(stubborn))
            process.kill_all(left, timeout=None)
        self._reap()

    def _tell(self, text: str) -> None:
        """The job's owner, by a line after those of rank 0, which writes no more."""
        _say(text)
        line = Message(time=time.time_ns() // 1000, level="warning", text=text).to_json()
        append_untrusted(self._run.events, f"\n{line}\n".encode())  # the last line before may lack its end

    def _leave(self, *_: object) -> None:
        self._told_to_leave = True


def _ignore(*_: object) -> None:
    pass


def _record(run: RunDir, report: ExitReport) -> None:
    """Writes `exit.json`, and waits a while for a full disk: without it, what has ended would run again."""

    def write() -> None:
        write_record(run.exit, report)

    def say(error: OSError) -> None:
        _say(f"{run.exit} cannot be written: {error}; trying again")

    try:
        retry_while_unavailable(write, seconds=_REPORT_S, errnos=PASSING, on_error=say)
    except OSError as error:
        sys.exit(f"{run.exit} cannot be written: {error}; it would say: {report.to_json()}")


def _say(text: str) -> None:
    """Into supervisor.log, which may be on the full disk that this is about."""
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode())


if __name__ == "__main__":
    main()
