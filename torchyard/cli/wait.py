"""The command that waits for jobs, for scripts: its exit code says how they ended."""

from __future__ import annotations

from enum import StrEnum
import time
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli import output
from torchyard.cli.arguments import JobsArgument, Json, connect, seconds_of
from torchyard.contract.states import JobState
from torchyard.host import terminal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torchyard.client import Client
    from torchyard.contract.jobs.views import JobView

TIMED_OUT = 124
"""As of timeout(1)."""
_FAILED, _CANCELLED = 1, 3
_ONE_S, _SEVERAL_S = 20.0, 2.0
"""For how long the server is asked to hold its answer back: one job's, or the first of several."""


class Event(StrEnum):
    """What is waited for."""

    ENDED = "ended"
    SUCCEEDED = "succeeded"
    RUNNING = "running"


def wait(
    jobs: JobsArgument,
    *,
    event: Annotated[
        Event,
        typer.Option(
            "--for",
            help="ended: until all finish. succeeded: the same, but stop at the first failure. running: "
            "until all run or finish.",
        ),
    ] = Event.ENDED,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stop waiting after this time: 90s, 15m, 24h, 7d.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Wait for jobs to finish.

    Exit codes: 0 all succeeded (or run), 1 one failed, 3 one was cancelled, 124 timed out.
    """
    until = None if timeout is None else time.monotonic() + seconds_of(timeout, option="--timeout")
    with connect() as client:
        found = {job.id: job for job in (client.get(ref).view for ref in jobs)}
        is_over = _watch(client, found, event, until=until, quiet=as_json)
    output.show([*found.values()], [], as_json=as_json)
    if not is_over:
        waits = ", ".join(f"{terminal.plain(job.name)} is {job.state}" for job in found.values() if _waits(job, event))
        terminal.note(f"timed out: {waits}")
    raise typer.Exit(_exit_code(found) if is_over else TIMED_OUT)


def _watch(client: Client, found: dict[str, JobView], event: Event, *, until: float | None, quiet: bool) -> bool:
    """Updates the jobs until what is waited for has happened: then it returns True. False: the time is over.

    Prints each job once that is so.
    """
    from torchyard.client.blocking import ask
    from torchyard.client.waiting import wait_for_change

    shown = set[str]()
    while True:
        for job in found.values():
            if not _waits(job, event) and job.id not in shown:
                shown.add(job.id)
                if not quiet:
                    terminal.write(f"{job.id}  {output.state(job)}")
        waiting = [job for job in found.values() if _waits(job, event)]
        if not waiting or (event is Event.SUCCEEDED and _exit_code(found)):
            return True
        left = float("inf") if until is None else until - time.monotonic()
        if left <= 0:
            return False
        for place, job in enumerate(waiting):
            seconds = 0.0 if place else min(left, _SEVERAL_S if len(waiting) > 1 else _ONE_S)
            found[job.id] = ask(client, wait_for_change, job, timeout=seconds)


def _waits(job: JobView, event: Event) -> bool:
    return not (job.state.terminal or (event is Event.RUNNING and job.state is JobState.RUNNING))


def _exit_code(found: Mapping[str, JobView]) -> int:
    states = {job.state for job in found.values()}
    return _FAILED if JobState.FAILED in states else _CANCELLED if JobState.CANCELLED in states else 0
