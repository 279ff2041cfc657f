"""Detects an attempt that makes no progress, and collects the stacks of its ranks."""

from collections.abc import Mapping
from pathlib import Path
import signal
import time

from torchyard.contract.attempts.records import ExitReport, LaunchPlan, ProcessIdentity
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.states import EndReason
from torchyard.contract.wire.units import format_duration
from worker.engines.local.launchers.logtail import tail_of_stderr
from worker.engines.local.supervisor import collectives
from worker.host import process

_DUMP_S = 1.0
"""How long the ranks have to write their stacks."""
_STACKS_LENGTH = 32_000
"""The most characters of the stacks in the report."""


class StallDetector:
    """Watches the event log of one attempt. A script may write no event: it can stall only after its first one."""

    def __init__(self, run: RunDir, plan: LaunchPlan) -> None:
        self._run = run
        self._plan = plan
        self._last_state = (0, 0)
        self._changed_at: float | None = time.monotonic() if plan.reports else None

    def stalled(self) -> bool:
        """Returns whether the event log did not change for `stall_timeout`. Rank 0 writes it: only its node sees.

        On a full disk, where the log cannot grow, rank 0 changes its modification time instead.
        """
        if 0 not in self._plan.ranks:
            return False
        state = _size_and_mtime(self._run.events)
        if state != self._last_state:
            self._last_state = state
            self._changed_at = time.monotonic()
        if self._changed_at is None:
            return False
        return time.monotonic() - self._changed_at > self._plan.stall_timeout.total_seconds()

    def report(self, ranks: Mapping[int, ProcessIdentity], *, send: process.Send) -> ExitReport:
        """Has every rank write the stacks of its threads and its place in its collectives, and quotes them.

        `ranks`: those that run. `send` signals one of them.
        """
        logs = {rank: self._run.log(f"rank-{rank}", "stderr") for rank in self._plan.ranks}
        before = {rank: _size_and_mtime(log)[0] for rank, log in logs.items()}
        stopped = sorted(rank for rank, item in ranks.items() if process.is_stopped(item))
        for item in ranks.values():
            send(item, signal.SIGUSR1)
        collectives.request(ranks, send=send)
        time.sleep(_DUMP_S)
        stacks: list[str] = []
        for rank, offset in before.items():
            if _size_and_mtime(logs[rank])[0] > offset:
                stacks.append(f"rank {rank}:\n{tail_of_stderr(self._run, f'rank-{rank}', offset=offset)}")
                continue
            state = "is stopped" if rank in stopped else "runs" if rank in ranks else "does not run"
            stacks.append(f"rank {rank} {state}; it wrote no stacks")
        positions = collectives.describe(self._run, ranks=self._plan.ranks)
        message = "; ".join([_message(self._plan, stopped=stopped, any_runs=bool(ranks)), *positions])
        return ExitReport(reason=EndReason.HANG, message=message, traceback="\n".join(stacks)[:_STACKS_LENGTH])


def _message(plan: LaunchPlan, *, stopped: list[int], any_runs: bool) -> str:
    parts = [f"no progress for {format_duration(plan.stall_timeout)}"]
    if stopped:
        parts.append(f"stopped by a signal: rank {', '.join(map(str, stopped))}")
    others = "other " if stopped else ""
    parts.append(f"each {others}rank's stderr ends with its stacks" if any_runs else "no rank runs")
    return "; ".join(parts)


def _size_and_mtime(path: Path) -> tuple[int, int]:
    """Returns the size in bytes and the modification time in nanoseconds, or zeros if there is no such file."""
    try:
        status = path.lstat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns
