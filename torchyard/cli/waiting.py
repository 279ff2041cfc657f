"""Shows why a job waits, until it starts."""

from datetime import UTC, datetime

from rich.console import Console
from rich.text import Text

from torchyard.cli import estimates
from torchyard.cli.follow import stamp
from torchyard.client import Client
from torchyard.client.blocking import ask
from torchyard.client.waiting import wait_for_change
from torchyard.contract.jobs.views import JobView
from torchyard.contract.states import JobState
from torchyard.host import terminal

_REFRESH_S = 2.0
"""After this many seconds the position in the queue is asked for again."""


def wait_for_start(client: Client, job: JobView) -> JobView:
    """Returns the job when it is no longer queued. Meanwhile shows the reason and the position in the queue.

    A terminal has one line that changes; elsewhere there is a line for each change. Its time is the server's, as are
    those of the events that follow, and never before that of the line above.
    """
    if job.state != JobState.QUEUED:
        return job
    console = Console(stderr=True, highlight=False)
    shown, latest = "", job.status_reason.since
    with console.status("") as line:
        if not console.is_terminal:
            line.stop()
        while job.state == JobState.QUEUED:
            reason, latest = _reason(job), max(latest, job.status_reason.since)
            if console.is_terminal:
                line.update(Text(f"{job.state} for {_since(job)}, {reason}{_starts(job)}"))
            elif reason != shown:
                console.print(stamp(latest).append(f"{job.state:<10} {reason}"), soft_wrap=True)
            shown = reason
            job = ask(client, wait_for_change, job, timeout=_REFRESH_S)
    return job


def _reason(job: JobView) -> str:
    reason = job.status_reason
    message = terminal.plain(reason.message)
    if reason.position is None:
        return message
    position = f"position {reason.position} in the queue"
    return position if message == job.state else f"{position}: {message}"


def _starts(job: JobView) -> str:
    """Returns when it is expected to start: for a terminal, as it changes with each estimate."""
    starts = estimates.short(job.status_reason.estimate)
    return f"; starts {starts}" if starts else ""


def _since(job: JobView) -> str:
    return terminal.duration((datetime.now(UTC) - job.created_at).total_seconds())
