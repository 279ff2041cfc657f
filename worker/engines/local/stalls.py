"""An attempt that makes no progress: when it counts as stuck, and what its ranks were doing."""

from collections.abc import Mapping
from pathlib import Path
import signal
import time

from torchyard.contract.durations import format_duration
from torchyard.contract.job import EndReason
from torchyard.contract.records import ExitReport, LaunchPlan, ProcessIdentity
from torchyard.contract.rundir import RunDir
from worker.engines.local import process
from worker.engines.local.logtail import quote

_DUMP_S = 1.0  # for the ranks to write their stacks
_STACKS = 32_000  # characters of them in the report


class StallWatch:
    """Looks at the events of one attempt. A script may write none at all: it stalls only after its first."""

    def __init__(self, run: RunDir, plan: LaunchPlan) -> None:
        self._run = run
        self._plan = plan
        self._seen = (0, 0)
        self._grew: float | None = time.monotonic() if plan.reports else None

    def stalled(self) -> bool:
        """Whether no event came for `stall_timeout`. On a full disk, where the file cannot grow, rank 0 touches it."""
        seen = _seen(self._run.events)
        if seen != self._seen:
            self._seen = seen
            self._grew = time.monotonic()
        if self._grew is None:
            return False
        return time.monotonic() - self._grew > self._plan.stall_timeout.total_seconds()

    def report(self, ranks: Mapping[int, ProcessIdentity]) -> ExitReport:
        """Has every rank write its threads' stacks to its stderr, and quotes them. `ranks`: those that run."""
        logs = {rank: self._run.log(f"rank-{rank}", "stderr") for rank in range(self._plan.world_size)}
        before = {rank: _seen(log)[0] for rank, log in logs.items()}
        stopped = sorted(rank for rank, item in ranks.items() if process.is_stopped(item))
        for item in ranks.values():
            process.send(item, signal.SIGUSR1)
        time.sleep(_DUMP_S)
        stacks: list[str] = []
        for rank, offset in before.items():
            if _seen(logs[rank])[0] > offset:
                stacks.append(f"rank {rank}:\n{quote(self._run, f'rank-{rank}', offset=offset)}")
                continue
            state = "is stopped" if rank in stopped else "runs" if rank in ranks else "does not run"
            stacks.append(f"rank {rank} {state}; it wrote no stacks")
        message = _message(self._plan, stopped=stopped, any_runs=bool(ranks))
        return ExitReport(reason=EndReason.HANG, message=message, traceback="\n".join(stacks)[:_STACKS])


def _message(plan: LaunchPlan, *, stopped: list[int], any_runs: bool) -> str:
    parts = [f"no progress for {format_duration(plan.stall_timeout)}"]
    if stopped:
        parts.append(f"stopped by a signal: rank {', '.join(map(str, stopped))}")
    others = "other " if stopped else ""
    parts.append(f"each {others}rank's stderr ends with its stacks" if any_runs else "no rank runs")
    return "; ".join(parts)


def _seen(path: Path) -> tuple[int, int]:
    """Size, and the nanosecond of the last change; zeros where there is no such file."""
    try:
        found = path.lstat()
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns
