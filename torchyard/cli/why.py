"""The command `why`: explains why a job does not start or how it ended, and what to do next."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from torchyard.cli import output
from torchyard.cli.arguments import JobArgument, Json, connect
from torchyard.cli.cluster import worker_lines
from torchyard.contract import terminal
from torchyard.contract.job import EndReason, JobState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchyard.contract.views import ErrorView, JobView, WorkerView

_ADVICE = {
    EndReason.USER_ERROR: "The program failed: the end of its log has the error.",
    EndReason.OUT_OF_MEMORY: "Use less memory: reduce training.per_device_batch_size (and raise"
    " gradient_accumulation_steps to compensate), or request a larger GPU with resources.min_memory_gb.",
    EndReason.HANG: "There was no progress for stall_timeout: the log has the stacks of that moment. If a step may"
    " take this long, raise stall_timeout.",
    EndReason.KILLED: "A process outside the service killed it, often the kernel because the host ran out of memory.",
    EndReason.DATA_ERROR: "The data is missing or in another format: correct config.data and submit again.",
    EndReason.CONFIG_ERROR: "The configuration is not possible here: correct it and submit again.",
    EndReason.LAUNCH_FAILED: "The processes did not start: see the launcher's lines in the log.",
    EndReason.TIME_LIMIT: "All attempts together took longer than time_limit: raise it and submit again.",
    EndReason.WORKER_LOST: "Its worker or supervisor ended or could not be reached, or a disk there was full: check"
    " that host.",
    EndReason.DEVICE_FAULT: "A device failed: ask the host's operator to check it.",
}


def why(job: JobArgument, *, as_json: Json = False) -> None:
    """Explain why a job does not start or how it ended, and what to do next."""
    with connect() as client:
        found = client.find(job)
        workers = client.workers() if found.state == JobState.QUEUED else []
    if as_json:
        views = {"job": found.model_dump(mode="json"), "workers": [item.model_dump(mode="json") for item in workers]}
        return terminal.write(json.dumps(views))
    terminal.write(output.paint_state(_sentence(found), found.state))
    if commit := output.git_of(found):
        terminal.write(f"git        {commit}")
    if found.state == JobState.QUEUED:
        _explain_waiting(found, workers)
    if found.error is not None:
        _explain_error(found, found.error)
    for line in _next_steps(found):
        terminal.write(line)
    return None


def _sentence(job: JobView) -> str:
    verb = {JobState.SUCCEEDED: "", JobState.FAILED: "", JobState.CANCELLED: "was "}.get(job.state, "is ")
    return f"{job.name} {verb}{job.state}: {job.status_reason.message}"


def _explain_waiting(job: JobView, workers: Sequence[WorkerView]) -> None:
    wanted, reason = job.spec.resources, job.status_reason
    kind = "" if wanted.device == "auto" else f" ({wanted.device})"
    terminal.write(f"asks for   {wanted.devices_per_node} device(s){kind} of one worker, at priority {job.priority}")
    if reason.position is not None:
        terminal.write(f"position   {reason.position} of the queue")
    terminal.write(f"waits      since {terminal.ago(reason.since)}")
    if not workers:
        return terminal.write("workers    none has registered: is one running?")
    terminal.write("")
    for line in worker_lines(workers):
        terminal.write(line)
    return None


def _explain_error(job: JobView, error: ErrorView) -> None:
    terminal.write(f"error      {output.error(error)}")
    terminal.write(f"attempts   {job.attempt} (max_restarts: {job.spec.max_restarts})")
    if error.traceback:
        terminal.write(f"\n{error.traceback.rstrip()}\n")
    if error.code in _ADVICE:
        terminal.write(f"advice     {_ADVICE[error.code]}")


def _next_steps(job: JobView) -> list[str]:
    command = output.command()
    failed_rank = f" --rank {job.error.rank}" if job.error is not None and job.error.rank is not None else ""
    log = (f"{command} logs {job.id}{failed_rank} --tail 50", "its last lines")
    steps = {
        JobState.QUEUED: [(f"{command} queue", "the jobs ahead of it"), (f"{command} cancel {job.id}", "cancel it")],
        JobState.STARTING: [(f"{command} logs {job.id} -f", "follow it")],
        JobState.RUNNING: [(f"{command} logs {job.id} -f", "follow it")],
        JobState.PAUSED: [(f"{command} resume {job.id}", "from its newest checkpoint")],
        JobState.SUCCEEDED: [(f"{command} download {job.id}", "its best checkpoint")],
        JobState.FAILED: [log, (f"{command} retry {job.id}", "run it again, from its newest checkpoint")],
        JobState.CANCELLED: [(f"{command} retry {job.id}", "run it again, from its newest checkpoint")],
    }.get(job.state, [])
    width = max((len(line) for line, _ in steps), default=0)
    return ["", *(f"{line:<{width}}  {terminal.paint(what, '2', sys.stdout)}" for line, what in steps)]
