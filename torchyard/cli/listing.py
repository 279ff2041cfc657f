"""The command `ps`: lists jobs, once or repeatedly."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli import output
from torchyard.cli.arguments import Json, connect, label_of, moment
from torchyard.cli.completion import job_names, sweep_names
from torchyard.cli.screen import redraw
from torchyard.contract.states import JobState
from torchyard.host import terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchyard.client.matching import Listed
    from torchyard.contract.jobs.views import JobGroup, JobSummary

_REFRESH_S = 1.0
_LISTED = 20
_HEADERS = ("ID", "NAME", output.OWNER, "STATE", "BEST / REASON", "PROGRESS", "AGE")


def ps(
    *,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="List at most N jobs. Default: 20.")] = None,
    all_rows: Annotated[bool, typer.Option("--all-rows", help="List all jobs, not only the newest 20.")] = False,
    every: Annotated[bool, typer.Option("--all", "-a", help="List other users' jobs, too.")] = False,
    state: Annotated[
        list[JobState] | None,
        typer.Option(metavar="STATE", help="Only jobs in this state, such as queued. Repeatable."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Only jobs of this name.", autocompletion=job_names)] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Only jobs with this label. Repeatable.")
    ] = None,
    sweep: Annotated[
        str | None, typer.Option(metavar="SWEEP", help="Only the trials of this sweep.", autocompletion=sweep_names)
    ] = None,
    search: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only jobs with TEXT in name, id, labels or notes.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only jobs submitted since TIME: 2h (ago), or a date.")
    ] = None,
    starred: Annotated[bool, typer.Option("--starred", help="Only starred jobs.")] = False,
    archived: Annotated[bool, typer.Option("--archived", help="List only archived jobs.")] = False,
    group_by: Annotated[
        str | None, typer.Option(metavar="label:KEY", help="Count jobs by label value and state.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Watch the list until Ctrl-C.")] = False,
    as_json: Json = False,
) -> None:
    """List jobs, newest first."""
    if all_rows and limit is not None:
        raise typer.BadParameter("use either --limit or --all-rows, not both")
    labels = dict(label_of(text) for text in label or ())
    created_after = moment(since) if since is not None else None
    if watch and group_by is not None:
        raise typer.BadParameter("--watch cannot be used with --group-by")
    if watch and (as_json or not sys.stdout.isatty()):
        raise typer.BadParameter("--watch needs a terminal; in a script use `ps --json` or `logs JOB -f`")
    matching: Listed = {
        "state": state or (),
        "name": name,
        "labels": labels,
        "q": search,
        "created_after": created_after,
        "starred": starred or None,
        "archived": archived or None,
    }
    most = None if all_rows else limit or _LISTED
    if not (watch or group_by is not None or sweep is not None):
        return _list(matching, every=every, limit=most, notes_rest=limit is None, as_json=as_json)
    # A watcher sees at once that the server is unreachable; other calls wait for it.
    with connect(patience=_REFRESH_S if watch else 30.0) as client:
        matching["owner"] = None if every else client.me().name
        matching["sweep"] = None if sweep is None else client.sweeps.get(sweep).id
        if group_by is not None:
            return _write_groups(client.jobs.groups(group_by, **matching), group_by, as_json=as_json)
        if watch:
            # pyrefly: ignore[open-unpacking] it has no `sort`
            return redraw(lambda: job_lines([*client.jobs.list(**matching, limit=_shown(most))]), seconds=_REFRESH_S)
    return _list(matching, every=every, limit=most, notes_rest=limit is None, as_json=as_json)


def _shown(most: int | None) -> int:
    """Returns how many jobs the screen has room for, at most so many: each redrawing reads them."""
    rows = shutil.get_terminal_size().lines
    return rows if most is None else min(most, rows)


def _list(matching: Listed, *, every: bool, limit: int | None, notes_rest: bool, as_json: bool) -> None:
    """Lists the jobs without loading the client: this command is typed more often than any other."""
    from torchyard.cli.plain import Reader

    with Reader() as reader:
        matching["owner"] = None if every else reader.own_name()
        if as_json:
            shown = reader.jobs_as_json(matching, limit=limit)
            terminal.write(json.dumps(shown))
        else:
            _write(shown := reader.jobs(matching, limit=limit), every=every)
        if limit is not None and notes_rest and len(shown) == limit:
            count, is_all = reader.count(matching)
            if count > limit:
                terminal.note(f"{limit} of {'' if is_all else 'more than '}{count:,}: --all-rows lists all.")


def _write(jobs: list[JobSummary], *, every: bool) -> None:
    for line in job_lines(jobs):
        terminal.write(line)
    if not jobs:
        others = "" if every else f" Jobs of other users: {output.command()} ps --all."
        terminal.note(f"No such jobs. Submit one: {output.command()} run PROGRAM.{others}")


def _write_groups(groups: Sequence[JobGroup], by: str, *, as_json: bool) -> None:
    states = [state for state in JobState if any(state in group.counts for group in groups)]
    headers = (by.removeprefix("label:").upper(), "JOBS", *(state.upper() for state in states))
    rows = [
        (
            "-" if group.value is None else group.value,
            str(group.total),
            *(str(group.counts.get(state, "")) for state in states),
        )
        for group in groups
    ]
    output.show(groups, output.table(headers, rows), nothing="No such jobs.", as_json=as_json)


def job_lines(jobs: list[JobSummary]) -> list[str]:
    heading, *lines = output.table(_HEADERS, [_row(job) for job in jobs])
    return [heading, *(output.paint_state(line, output.state(job)) for line, job in zip(lines, jobs, strict=True))]


def _row(job: JobSummary) -> tuple[str, ...]:
    name = f"{job.name} *" if job.starred else job.name
    age = terminal.age(job.created_at)
    return (job.id, name, job.owner, output.state(job), _best_or_why(job), output.short_progress(job), age)


def _best_or_why(job: JobSummary) -> str:
    if job.state not in {JobState.RUNNING, JobState.SUCCEEDED}:
        return output.reason(job)
    return f"{terminal.number(job.best.value)} {job.best.metric}" if job.best is not None else ""
