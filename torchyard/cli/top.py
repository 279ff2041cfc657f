"""The command `top`: who holds which device, who waits and why, and what ended today."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli import output
from torchyard.cli.arguments import connect
from torchyard.cli.cluster import kept_lines, pool_lines
from torchyard.cli.screen import redraw
from torchyard.contract.states import SKIPPED, JobState
from torchyard.host import terminal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torchyard.client import Client
    from torchyard.contract.cluster.views import DeviceView, WorkerHistoryView, WorkerView
    from torchyard.contract.jobs.views import JobSummary
    from torchyard.contract.queue.views import QueueEntry

_REFRESH_S, _HISTORY_S = 2.0, 10.0
"""Seconds between two readings: of everything, and of the history."""
_SPAN, _POINTS = timedelta(minutes=10), 20
"""Of a device's history."""
_MOST_WAITING, _MOST_ENDED, _LOOKED_AT = 10, 10, 100
_BAR = 10
_STEPS = "▁▂▃▄▅▆▇█"
_SIGNS: Mapping[str, str] = {JobState.SUCCEEDED: "✓", JobState.FAILED: "✕", JobState.CANCELLED: "–", SKIPPED: "–"}


def top(*, once: Annotated[bool, typer.Option("--once", help="Print it once.")] = False) -> None:
    """Watch devices, the queue and the jobs finished today.

    q or Ctrl-C ends it.
    """
    live = sys.stdout.isatty() and not once
    with connect(patience=_REFRESH_S if live else 30.0) as client:
        reader = _Reader(client)
        if live:
            return redraw(reader.lines, seconds=_REFRESH_S)
        for line in reader.lines():
            terminal.write(line)
    return None


@dataclass
class _Reader:
    """Reads what is shown. The history changes slowly, so it is read less often."""

    client: Client
    history: Mapping[str, WorkerHistoryView] | None = None
    read_at: float = 0.0

    def lines(self) -> list[str]:
        """Returns what to show now. Raises ServerUnreachable and Unavailable."""
        workers, waiting = self.client.workers.list(), [*self.client.queue()]
        if self.history is None or time.monotonic() > self.read_at + _HISTORY_S:
            self.history = {worker.id: self._history(worker) for worker in workers if worker.pool is None}
            self.read_at = time.monotonic()
        ended = [state for state in JobState if state.terminal]
        jobs = [*self.client.jobs.list(state=ended, sort="finished", limit=_LOOKED_AT)]
        return [*_floor(workers, self.history), "", *_queue(waiting), "", *_ended(jobs)]

    def _history(self, worker: WorkerView) -> WorkerHistoryView:
        return self.client.workers.history(worker.id, begins=datetime.now(UTC) - _SPAN, max_points=_POINTS)


def _floor(workers: Sequence[WorkerView], history: Mapping[str, WorkerHistoryView]) -> list[str]:
    devices = [device for worker in workers for device in worker.devices]
    held = sum(device.holder is not None for device in devices)
    hosts = [worker for worker in workers if worker.pool is None]
    rows = [row for worker in hosts for row in _device_rows(worker, history.get(worker.id))]
    heading = _heading("DEVICES", f"{held} of {len(devices)} in use")
    table = output.table(("WORKER", "DEVICE", "JOB", "UTIL", "", "LAST 10 MIN", "MEMORY"), rows) if rows else []
    return [heading, *table, *kept_lines(workers), *pool_lines(workers)]


def _device_rows(worker: WorkerView, history: WorkerHistoryView | None) -> list[tuple[str, ...]]:
    past = {device.uuid: device.columns.utilization for device in history.devices} if history is not None else {}
    name = worker.name if worker.state == "ready" else f"{worker.name} ({worker.state})"
    rows = [_device(device, past.get(device.uuid, [])) for device in worker.devices] or [("none",)]
    return [(name, *row, *[""] * (6 - len(row))) for row in rows]


def _device(device: DeviceView, past: Sequence[float | None]) -> tuple[str, ...]:
    now = device.utilization
    percent = "" if now is None else f"{now:.0%}"
    full, used = device.memory_bytes, device.memory_used_bytes
    memory = "" if full is None or used is None else f"{terminal.size(used)} of {terminal.size(full)}"
    return (f"{device.kind} {device.index}", _holder(device), percent, _bar(now), _sparkline(past), memory)


def _holder(device: DeviceView) -> str:
    holder = device.holder
    if holder is None:
        return device.blocked or "free"
    name = f"{holder.name} ({holder.owner})" if holder.name is not None else output.private_job(holder.owner)
    return f"{name}, {terminal.age(holder.since)}"


def _bar(share: float | None) -> str:
    if share is None:
        return ""
    full = min(_BAR, round(share * _BAR))
    return "█" * full + "░" * (_BAR - full)


def _sparkline(shares: Sequence[float | None]) -> str:
    return "".join(" " if share is None else _STEPS[min(len(_STEPS) - 1, int(share * len(_STEPS)))] for share in shares)


def _queue(waiting: Sequence[QueueEntry]) -> list[str]:
    rows = [
        (
            str(entry.position),
            entry.name or output.private_job(entry.owner),
            entry.owner,
            entry.reason.message if entry.reason is not None else "",
            terminal.age(entry.created_at),
        )
        for entry in waiting[:_MOST_WAITING]
    ]
    shown = output.table(("", "NAME", output.OWNER, "REASON", "AGE"), rows) if rows else []
    return [_heading("QUEUE", f"{len(waiting)} waiting"), *shown, *_more(len(waiting), _MOST_WAITING)]


def _ended(jobs: Sequence[JobSummary]) -> list[str]:
    midnight = datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
    ended = [(job.finished_at, job) for job in jobs if job.finished_at is not None and job.finished_at >= midnight]
    newest = [job for _, job in sorted(ended, key=lambda item: item[0], reverse=True)]
    lines = output.table(("", "NAME", output.OWNER, "STATE", "RESULT"), [_result(job) for job in newest[:_MOST_ENDED]])
    painted = [output.paint_state(line, output.state(job)) for line, job in zip(lines[1:], newest, strict=False)]
    count = f"{len(newest)}" if len(newest) < _LOOKED_AT else f"{len(newest)} or more"
    shown = [lines[0], *painted] if newest else []
    return [_heading("FINISHED TODAY", count), *shown, *_more(len(newest), _MOST_ENDED)]


def _result(job: JobSummary) -> tuple[str, ...]:
    best = f"{terminal.number(job.best.value)} {job.best.metric}" if job.best is not None else ""
    failed = output.reason(job) if job.error is not None else ""
    state = output.state(job)
    return (_SIGNS.get(state, ""), job.name, job.owner, state, failed or best)


def _more(count: int, shown: int) -> list[str]:
    return [f"and {count - shown} more"] if count > shown else []


def _heading(what: str, count: str) -> str:
    return f"{terminal.paint(what, '1', sys.stdout)}  {count}"
