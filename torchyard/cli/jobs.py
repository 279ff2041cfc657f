"""Commands that show, pause, resume and cancel jobs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli import choosing, estimates, output
from torchyard.cli.arguments import Devices, JobArgument, JobsArgument, Json, connect
from torchyard.cli.card import card_lines
from torchyard.cli.checkpoints import checkpoint_lines
from torchyard.cli.choosing import DryRun, DryStop, Everybody, Filter, Found, InStates, SomeJobs, WithLabels, Yes
from torchyard.contract.states import JobState
from torchyard.host import terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchyard.client import Client
    from torchyard.contract.jobs.views import JobSummary, JobView


_ID = re.compile("job_[0-9a-f]{32}")


def show(job: JobArgument, *, as_json: Json = False) -> None:
    """Show a job, its model card and its checkpoints."""
    from torchyard.cli.plain import Reader

    with Reader() as reader:
        if as_json:
            return terminal.write(reader.job_as_json(job))
        found = reader.job(job)
        checkpoints = reader.checkpoints(found.id)
    for label, text in _rows(found):
        line = output.hanging(f"{label:<11}{text}")
        terminal.write(output.paint_state(line, output.state(found)) if label == "state" else line)
    if found.error is not None and found.error.traceback:
        terminal.write(f"\n{found.error.traceback.rstrip()}")
    tables = (_metric_lines(found), _note_lines(found), card_lines(found.card or {}), checkpoint_lines(checkpoints))
    for lines in tables:
        for line in ("", *lines) if len(lines) > 1 else ():
            terminal.write(line)
    return None


def cancel(
    jobs: SomeJobs = None,
    *,
    now: Annotated[bool, typer.Option("--now", help="Kill at once, without a checkpoint.")] = False,
    state: InStates = None,
    label: WithLabels = None,
    search: Found = None,
    every: Everybody = False,
    dry_run: DryStop = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Cancel jobs.

    Running jobs get time to save a checkpoint.
    """
    where = Filter(state, label, search, every, dry_run)
    if choosing.by_filter(jobs, where):
        choosing.act_on_all("cancel", where, yes=yes, as_json=as_json, now=now)
    elif not choosing.stops_named("cancel", jobs or [], now=now, dry_run=dry_run, yes=yes, as_json=as_json):
        pass
    elif now:
        _kill(jobs or [], as_json=as_json)
    else:
        _change(jobs or [], lambda client, job_id: client.jobs.cancel(job_id), pending="stopping", as_json=as_json)


def pause(
    jobs: SomeJobs = None,
    *,
    state: InStates = None,
    label: WithLabels = None,
    search: Found = None,
    every: Everybody = False,
    dry_run: DryStop = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Pause jobs.

    Running jobs get time to save a checkpoint, then release their devices.
    """
    where = Filter(state, label, search, every, dry_run)
    if choosing.by_filter(jobs, where):
        return choosing.act_on_all("pause", where, yes=yes, as_json=as_json)
    if not choosing.stops_named("pause", jobs or [], dry_run=dry_run, yes=yes, as_json=as_json):
        return None
    return _change(jobs or [], lambda client, job_id: client.jobs.pause(job_id), pending="pausing", as_json=as_json)


def resume(
    jobs: SomeJobs = None,
    *,
    state: InStates = None,
    label: WithLabels = None,
    search: Found = None,
    every: Everybody = False,
    devices: Devices = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Resume paused jobs.

    They return to the queue, and continue from their newest checkpoints.
    """
    where = Filter(state, label, search, every, dry_run)
    if choosing.by_filter(jobs, where):
        if devices is not None:
            raise typer.BadParameter("--devices needs job names; it cannot be used with a filter")
        return choosing.act_on_all("resume", where, yes=True, as_json=as_json)
    if dry_run:
        return choosing.preview("resume", jobs or (), as_json=as_json)

    def resumed(client: Client, job_id: str) -> JobView:
        if devices is not None:
            from torchyard.cli.resizing import say_change

            say_change(client, client.get(job_id).view, devices)
        return client.jobs.resume(job_id, devices=devices)

    return _change(jobs or [], resumed, as_json=as_json)


def share(
    jobs: JobsArgument,
    *,
    private: Annotated[bool, typer.Option("--private", help="Stop sharing.")] = False,
    as_json: Json = False,
) -> None:
    """Share jobs with all users of the server.

    They can read the spec, logs, metrics and checkpoints.
    """
    with connect() as client:
        visibility = "private" if private else "team"
        changed = [client.jobs.update(client.get(ref).id, visibility=visibility) for ref in jobs]
    output.show(changed, (f"{job.id}  {job.visibility}" for job in changed), as_json=as_json)


def _change(jobs: list[str], change: Callable[[Client, str], JobView], *, pending: str = "", as_json: bool) -> None:
    """Changes each job, and prints the states. `pending` describes a job that is still running."""
    with connect() as client:
        changed = [change(client, client.get(ref).id) for ref in jobs]
    output.show(changed, (_state_line(job, pending) for job in changed), as_json=as_json)


def _state_line(job: JobView | JobSummary, pending: str) -> str:
    waits = pending and job.state in {JobState.STARTING, JobState.RUNNING}
    return f"{job.id}  {job.state}{f', {pending}' if waits else ''}"


def _kill(jobs: list[str], *, as_json: bool) -> None:
    with connect() as client:
        killed = [_killed(client, ref) for ref in jobs]
    output.show(killed, (_state_line(job, "killing") for job in killed), as_json=as_json)


def _killed(client: Client, ref: str) -> JobView | JobSummary:
    """Kills a job and returns it. Of a private job of others, which an operator may end, it returns what lists show.

    Such a job is named by its whole id, which comes before names: anybody may give their job the name of another, or
    its id as a name, to be killed in its place.
    """
    from torchyard.contract.errors import Forbidden, NotFound

    if not _ID.fullmatch(ref):
        return client.jobs.cancel(client.get(ref).id, now=True)
    try:
        return client.jobs.cancel(ref, now=True)
    except (NotFound, Forbidden):
        if client.jobs.act("cancel", [ref], now=True).refused:
            raise
        return next(job for job in client.jobs.list(q=ref) if job.id == ref)


def _note_lines(job: JobView) -> list[str]:
    return ["notes", *(f"  {terminal.plain(line)}" for line in job.notes.splitlines())] if job.notes else []


def _metric_lines(job: JobView) -> list[str]:
    """Returns a table of the newest values, the one by which checkpoints are ranked first."""
    best, rows = {}, job.metrics
    if job.best is not None:
        again = "" if job.best.remeasured is None else f", re-evaluated {terminal.number(job.best.remeasured)}"
        best = {job.best.metric: f"{terminal.number(job.best.value)} at step {job.best.step}{again}"}
    keys = sorted({*rows, *best}, key=lambda key: (key not in best, key))
    return output.table(
        ("METRIC", "LAST", "BEST"),
        [(key, terminal.number(rows[key]) if key in rows else "", best.get(key, "")) for key in keys],
    )


def _initial(job: JobView) -> str:
    found = job.init_from
    return "" if found is None else f"{found.model or found.ref} (step {found.step})"


def _marks(job: JobView) -> list[str]:
    return [word for word, holds in (("starred", job.starred), ("archived", job.archived)) if holds]


def _sweep(job: JobView) -> str:
    found = job.sweep
    return "" if found is None else f"{found.name} ({found.id}), trial {found.trial}"


def _rows(job: JobView) -> list[tuple[str, str]]:
    rows = [("id", job.id), ("name", job.name), ("trainer", job.spec.trainer)]
    rows += [("owner", job.owner), ("visibility", job.visibility)]
    rows += [("state", f"{output.state(job)}: {output.reason(job)}"), ("attempt", str(job.attempt))]
    if job.status_reason.estimate is not None:
        rows += [("starts", estimates.sentence(job.status_reason.estimate))]
    rows += [("retry of", job.retry_of or ""), ("init from", _initial(job)), ("sweep", _sweep(job))]
    rows += [("after" if place == 0 else "", text) for place, text in enumerate(output.after(job))]
    rows += [("priority", str(job.priority) if job.priority else "")]
    rows += [("git", output.git_of(job))]
    rows += [("labels", output.labels(job)), ("marks", ", ".join(_marks(job)))]
    rows += [("devices" if place == 0 else "", text) for place, text in enumerate(output.held(job.devices))]
    rows += [("progress", output.progress(job))]
    rows += [
        (label, output.moment(moment))
        for label, moment in (("created", job.created_at), ("started", job.started_at), ("finished", job.finished_at))
        if moment is not None
    ]
    if job.error is not None:
        rows.append(("error", output.error(job.error)))
    return [(label, text) for label, text in rows if text]
