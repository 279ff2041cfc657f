"""The command `why`: explains why a job does not start or how it ended, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchyard.cli import estimates, output
from torchyard.cli.arguments import JobArgument, Json, connect
from torchyard.cli.checkpoints import has_left_files
from torchyard.cli.cluster import worker_lines
from torchyard.contract.states import DEVICES_BUSY, RESERVED, SKIPPED, WAITING_IN_SLURM, WAITS_FOR_JOBS, JobState
from torchyard.host import terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchyard.contract.advice import AdviceView
    from torchyard.contract.cluster.views import WorkerView
    from torchyard.contract.jobs.views import JobView


def why(job: JobArgument, *, as_json: Json = False) -> None:
    """Explain why a job waits, or how it ended.

    Also prints what to do next.
    """
    with connect() as client:
        found = client.get(job).view
        waits = found.state == JobState.QUEUED or found.status_reason.code == WAITING_IN_SLURM
        workers = _places(found, client.workers.list()) if waits else []
        advice = client.jobs.advice(found.id)
        ended = found.state == JobState.PAUSED or found.state.terminal
        has_checkpoint = ended and next(iter(client.jobs.checkpoints(found.id)), None) is not None
        asks = found.state == JobState.SUCCEEDED and not has_checkpoint
        has_files = asks and has_left_files(client, found.id)
    if as_json:
        return output.write_json({"job": found, "workers": workers, "advice": advice})
    terminal.write(output.paint_state(output.hanging(_sentence(found, advice)), output.state(found)))
    if commit := output.git_of(found):
        terminal.write(f"git        {commit}")
    if waits:
        _explain_waiting(found, workers)
    if found.error is not None:
        terminal.write(output.hanging(f"ended      {output.ending(found.error)}; attempts: {found.attempt}"))
    _advise(found, advice)
    for line in _next_steps(found, has_checkpoint=has_checkpoint, has_files=has_files):
        terminal.write(line)
    if found.error is not None and found.error.traceback:
        terminal.write(f"\n{found.error.traceback.rstrip()}")
    return None


def _sentence(job: JobView, advice: AdviceView) -> str:
    state = output.state(job)
    verb = {JobState.SUCCEEDED: "", JobState.FAILED: "", JobState.CANCELLED: "was ", SKIPPED: "was "}.get(state, "is ")
    return f"{job.name} {verb}{state}: {_reason(job, advice)}"


def _reason(job: JobView, advice: AdviceView) -> str:
    """Returns why the job is in its state; the cause in the advice names the jobs that hold its devices."""
    is_blocked = job.status_reason.code in {DEVICES_BUSY, RESERVED} and advice.cause is not None
    return terminal.plain(advice.cause or "") if is_blocked else output.reason(job)


def _places(job: JobView, workers: Sequence[WorkerView]) -> list[WorkerView]:
    """Returns where the job may start: its pool, or the hosts."""
    pool = job.spec.resources.pool
    return [worker for worker in workers if (worker.pool is None if pool is None else worker.name == pool)]


def _explain_waiting(job: JobView, workers: Sequence[WorkerView]) -> None:
    wanted, reason = job.spec.resources, job.status_reason
    place = f"in pool {wanted.pool}" if wanted.pool is not None else "on one worker"
    terminal.write(output.hanging(f"requests   {wanted.described} {place}, at priority {job.priority}"))
    if reason.position is not None:
        terminal.write(f"position   {reason.position} in the queue")
    if reason.estimate is not None and (starts := estimates.sentence(reason.estimate)):
        terminal.write(f"starts     {starts}")
    terminal.write(f"waiting    {terminal.ago(reason.since).removesuffix(' ago')}")
    if reason.code == WAITS_FOR_JOBS:
        for place, line in enumerate(output.after(job)):
            terminal.write(f"{'' if place else 'after':<11}{line}")
        return None
    if not workers:
        none = "none is registered; is one running?"
        return terminal.write(f"workers    {none}" if wanted.pool is None else f"pool       {none}")
    terminal.write("")
    for line in worker_lines(workers):
        terminal.write(line)
    return None


def _advise(job: JobView, advice: AdviceView) -> None:
    """Prints the judgement, but nothing that the first line says already."""
    known = _reason(job, advice)
    if known not in advice.headline and advice.headline not in _sentence(job, advice):
        terminal.write(output.hanging(f"advice     {terminal.plain(advice.headline)}"))
    if advice.cause is not None and advice.cause not in known and advice.cause not in advice.headline:
        terminal.write(output.hanging(f"cause      {terminal.plain(advice.cause)}"))
    for item in advice.evidence:
        line = f"line {item.line} of the log" if item.line is not None else ""
        where = ", ".join(part for part in (line, f"rank {item.rank}" if item.rank is not None else "") if part)
        terminal.write(output.hanging(f"evidence   {terminal.plain(item.text)}{f' ({where})' if where else ''}"))
    for place, change in enumerate(advice.starts_if):
        label = "" if place else "starts now"
        terminal.write(f"{label:<11}{terminal.plain(change.message)}")
    for step in advice.steps:
        terminal.write(output.hanging(f"next       {terminal.plain(step)}"))


def _next_steps(job: JobView, *, has_checkpoint: bool, has_files: bool) -> list[str]:
    """Names the commands that can be used in the job's state."""
    command = output.command()
    failed_rank = f" --rank {job.error.rank}" if job.error is not None and job.error.rank is not None else ""
    log = (f"{command} logs {job.id}{failed_rank} --tail 50", "its last log lines")
    start = "from its newest checkpoint" if has_checkpoint else _without_checkpoint(job)
    which = "its best checkpoint" if job.best is not None else "its newest checkpoint"
    retry, download, files = (
        (f"{command} retry {job.id}", f"run it again, {start}"),
        (f"{command} download {job.id}", which),
        (f"{command} cp {job.id}:", "its files"),
    )
    steps = {
        JobState.QUEUED: [(f"{command} queue", "the jobs ahead of it"), (f"{command} cancel {job.id}", "cancel it")],
        JobState.STARTING: [(f"{command} logs {job.id} -f", "follow it")],
        JobState.RUNNING: [(f"{command} logs {job.id} -f", "follow it")],
        JobState.PAUSED: [(f"{command} resume {job.id}", start)],
        JobState.SUCCEEDED: [download if has_checkpoint else files if has_files else log],
        JobState.FAILED: [log, retry],
        JobState.CANCELLED: [retry],
    }.get(job.state, [])
    return ["", *output.explained(steps)]


def _without_checkpoint(job: JobView) -> str:
    """Says where a job without a checkpoint begins. A script finds its working folder, a recipe nothing."""
    if job.trainer == "script":
        return "with its working folder, if the host still has it (no checkpoint)"
    return "from the start (no checkpoint)"
