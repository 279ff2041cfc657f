"""Commands about single jobs: show, pause, resume, cancel and remove them."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli import output
from torchyard.cli.arguments import JobArgument, JobsArgument, Json, connect
from torchyard.cli.card import card_lines
from torchyard.cli.checkpoints import checkpoint_lines
from torchyard.contract import terminal

if TYPE_CHECKING:
    from torchyard.contract.views import JobView


def show(job: JobArgument, *, as_json: Json = False) -> None:
    """Show one job, its model card and its checkpoints."""
    with connect() as client:
        found = client.find(job)
        if as_json:
            return output.write_json(found)
        checkpoints = [*client.checkpoints(found.id)]
    for label, text in _facts(found):
        line = f"{label:<11}{text}"
        terminal.write(output.paint_state(line, found.state) if label == "state" else line)
    if found.error is not None and found.error.traceback:
        terminal.write(f"\n{found.error.traceback.rstrip()}")
    for lines in (card_lines(found.card or {}), checkpoint_lines(checkpoints)):
        for line in ("", *lines) if len(lines) > 1 else ():
            terminal.write(line)
    return None


def cancel(jobs: JobsArgument, *, as_json: Json = False) -> None:
    """Cancel jobs. A running one saves a checkpoint before it stops."""
    with connect() as client:
        cancelled = [client.cancel(client.find(ref).id) for ref in jobs]
    if as_json:
        return output.write_json(cancelled)
    for job in cancelled:
        terminal.write(f"{job.id}  {job.state}{'' if job.state.terminal else ', is being cancelled'}")
    return None


def pause(jobs: JobsArgument, *, as_json: Json = False) -> None:
    """Pause jobs. A running one saves a checkpoint before it gives its devices back."""
    with connect() as client:
        paused = [client.pause(client.find(ref).id) for ref in jobs]
    if as_json:
        return output.write_json(paused)
    for job in paused:
        terminal.write(f"{job.id}  {job.state}{'' if job.state == 'paused' else ', is about to pause'}")
    return None


def resume(jobs: JobsArgument, *, as_json: Json = False) -> None:
    """Let paused jobs go on from their newest checkpoints."""
    with connect() as client:
        resumed = [client.resume(client.find(ref).id) for ref in jobs]
    if as_json:
        return output.write_json(resumed)
    for job in resumed:
        terminal.write(f"{job.id}  {job.state}")
    return None


def rm(
    jobs: JobsArgument,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Remove jobs that have ended, with their metrics, logs and checkpoints."""
    with connect() as client:
        found = {job.id: job for job in (client.find(ref) for ref in jobs)}
        _check_ended([*found.values()])
        if not yes:
            _confirm([*found.values()])
        for job_id in found:
            client.delete(job_id)
            if not as_json:
                terminal.write(f"{job_id}  removed")
    if as_json:
        terminal.write(json.dumps({"removed": [*found]}))


def _check_ended(jobs: list[JobView]) -> None:
    from torchyard.contract.errors import Conflict

    for job in jobs:
        if not job.state.terminal:
            raise Conflict(f"{job.name} is {job.state}; cancel it first: {output.command()} cancel {job.id}")


def _confirm(jobs: list[JobView]) -> None:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise typer.BadParameter("there is no terminal to ask on: say --yes to remove jobs for good")
    for job in jobs:
        terminal.note(f"  {job.id}  {job.name}  {job.state} {terminal.ago(job.finished_at or job.created_at)}")
    typer.confirm("Remove with all metrics, logs and checkpoints?", abort=True, err=True)


def _facts(job: JobView) -> list[tuple[str, str]]:
    facts = [("id", job.id), ("name", job.name), ("trainer", job.spec.trainer)]
    facts += [("state", f"{job.state}: {job.status_reason.message}"), ("attempt", str(job.attempt))]
    facts += [("retry of", job.retry_of or ""), ("priority", str(job.priority) if job.priority else "")]
    facts += [("labels", ", ".join(f"{key}={value}" for key, value in job.labels.items()))]
    facts += [("devices", ", ".join(f"{device.name} #{device.index}" for device in job.devices))]
    facts += [("progress", output.progress(job)), ("metrics", output.metrics(job.metrics))]
    if job.best is not None:
        facts.append(("best", f"{job.best.metric} {job.best.value:.6g} at step {job.best.step}"))
    facts += [
        (label, f"{moment:%Y-%m-%d %H:%M:%S} UTC ({terminal.ago(moment)})")
        for label, moment in (("created", job.created_at), ("started", job.started_at), ("finished", job.finished_at))
        if moment is not None
    ]
    if job.error is not None:
        facts.append(("error", output.error(job.error)))
    return [(label, text) for label, text in facts if text]
