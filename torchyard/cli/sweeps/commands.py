"""The commands of `sweep`: many jobs that differ in some keys, watched, ranked and ended as one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli import output, prompt
from torchyard.cli.arguments import Json, connect
from torchyard.cli.choosing import Yes
from torchyard.cli.completion import sweep_names
from torchyard.host import terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchyard.client import Client
    from torchyard.contract.sweeps.spec import SweepState
    from torchyard.contract.sweeps.views import SweepView

_LISTED = 20
SweepArgument = Annotated[
    str,
    typer.Argument(
        metavar="SWEEP",
        help="A sweep's name (its newest sweep), its id or its short id.",
        autocompletion=sweep_names,
    ),
]
SweepsArgument = Annotated[
    list[str], typer.Argument(metavar="SWEEP…", help="Names, ids or short ids.", autocompletion=sweep_names)
]
sweep = typer.Typer(
    no_args_is_help=True,
    help="Manage sweeps: many jobs that differ in some settings.\n\nCreate one with `run --sweep`, "
    "or `submit` and a file.",
)


@sweep.command("show")
def show(
    sweep: SweepArgument,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Watch the sweep until it finishes.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="List at most N trials.")] = _LISTED,
    every: Annotated[bool, typer.Option("--all-rows", help="List all trials.")] = False,
    as_json: Json = False,
) -> None:
    """Show a sweep and its trials, best first. --json has all trials."""
    from torchyard.cli.sweeps import submitting

    with connect() as client:
        found = client.sweeps.get(sweep)
        if follow:
            submitting.followed(client, found, as_json=as_json)
        submitting.show(client, found, limit=None if every or as_json else limit, as_json=as_json)


@sweep.command("ls")
def ls(
    *,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="List at most N sweeps. Default: 20.")
    ] = None,
    all_rows: Annotated[bool, typer.Option("--all-rows", help="List all sweeps, not only the newest 20.")] = False,
    every: Annotated[bool, typer.Option("--all", "-a", help="List other users' sweeps, too.")] = False,
    state: Annotated[
        list[str] | None,
        typer.Option(metavar="STATE", help="Only sweeps in this state, such as running. Repeatable."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List your sweeps, newest first."""
    from torchyard.cli.sweeps import table

    if all_rows and limit is not None:
        raise typer.BadParameter("use either --limit or --all-rows, not both")
    states = [_state(text) for text in state or ()]
    one_more = None if all_rows else (limit or _LISTED) + 1
    with connect() as client:
        owner = None if every else client.me().name
        found = [*client.sweeps.list(state=states, owner=owner, limit=one_more)]
    found, rest = (found, []) if one_more is None else (found[: one_more - 1], found[one_more - 1 :])
    if rest and limit is None:
        terminal.note(f"{_LISTED} of more: --all-rows lists all.")
    output.show(
        found,
        table.summaries(found),
        nothing=f"No such sweeps. Submit one: {output.command()} run --sweep seed=1..5 PROGRAM",
        as_json=as_json,
    )


@sweep.command("best")
def best(
    sweep: SweepArgument,
    *,
    to: Annotated[
        Path | None, typer.Option("--output", "-o", help="Download the checkpoint to this file or folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print or download the best checkpoint.

    Prints JOB/CHECKPOINT, for other commands. With -o, downloads it. It is the checkpoint of the best trial by the
    sweep's metric.
    """
    from torchyard.cli.sweeps.best import best_checkpoint

    with connect() as client:
        best_checkpoint(client, client.sweeps.get(sweep), to=to, as_json=as_json)


@sweep.command("pause")
def pause(sweeps: SweepsArgument, *, yes: Yes = False, as_json: Json = False) -> None:
    """Pause sweeps and their jobs. Running jobs get time to save."""
    _change(sweeps, lambda client, sweep_id: client.sweeps.pause(sweep_id), stops=not yes, as_json=as_json)


@sweep.command("resume")
def resume(sweeps: SweepsArgument, *, as_json: Json = False) -> None:
    """Resume paused sweeps and their jobs."""
    _change(sweeps, lambda client, sweep_id: client.sweeps.resume(sweep_id), as_json=as_json)


@sweep.command("cancel")
def cancel(sweeps: SweepsArgument, *, yes: Yes = False, as_json: Json = False) -> None:
    """Cancel sweeps and their unfinished jobs. Running jobs get time to save."""
    _change(sweeps, lambda client, sweep_id: client.sweeps.cancel(sweep_id), stops=not yes, as_json=as_json)


@sweep.command("extend")
def extend(
    sweep: SweepArgument,
    *,
    trials: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Add N trials (random, tpe, asha, --array).")
    ] = None,
    point: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE,…", help="Add this point (list): lr=0.1,seed=3, or JSON. Repeatable."),
    ] = None,
    max_parallel: Annotated[int | None, typer.Option(metavar="N", min=1, help="Run at most N trials at once.")] = None,
    as_json: Json = False,
) -> None:
    """Add trials, or change how many run at once. A finished sweep continues."""
    from torchyard.cli.sweeps import table
    from torchyard.cli.sweeps.submitting import points_of

    if trials is None and not point and max_parallel is None:
        raise typer.BadParameter("give --trials N, --point KEY=VALUE or --max-parallel N")
    with connect() as client:
        found = client.sweeps.get(sweep)
        points = points_of(point, str(found.spec.job.get("trainer"))) if point else None
        changed = client.sweeps.extend(found.id, trials=trials, points=points, max_parallel=max_parallel)
    output.show(changed, [f"{changed.id}  {changed.state}, {table.counts(changed.trials)}"], as_json=as_json)


@sweep.command("promote")
def promote(
    sweep: SweepArgument,
    trial: Annotated[int, typer.Argument(metavar="TRIAL", min=0, help="The trial's number in `sweep show`.")],
    *,
    as_json: Json = False,
) -> None:
    """Resume a trial that was stopped early, from its newest checkpoint."""
    with connect() as client:
        promoted = client.sweeps.promote(client.sweeps.get(sweep).id, trial)
    text = f"trial {promoted.number}  {promoted.state}  {promoted.job_id or ''}".rstrip()
    output.show(promoted, [text], as_json=as_json)


@sweep.command("rm")
def rm(
    sweeps: SweepsArgument,
    *,
    jobs: Annotated[
        bool, typer.Option("--jobs", help="Delete their jobs, too, with metrics, logs and checkpoints.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete finished sweeps. Without --jobs, their jobs stay."""
    with connect() as client:
        found = {one.id: one for one in (client.sweeps.get(ref) for ref in sweeps)}
        if not yes:
            _confirm([*found.values()], jobs=jobs)
        output.do_each(found, lambda sweep_id: client.sweeps.delete(sweep_id, jobs=jobs), "deleted", as_json=as_json)


def _state(text: str) -> SweepState:
    from torchyard.contract.sweeps.spec import SweepState
    from torchyard.contract.wire.wording import listed

    if text not in {*SweepState}:
        raise typer.BadParameter(f"{text!r} is not a state of a sweep: it must be {listed([*SweepState])}")
    return SweepState(text)


def _change(
    sweeps: list[str], change: Callable[[Client, str], SweepView], *, stops: bool = False, as_json: bool
) -> None:
    """`stops`: the action stops running jobs, so a terminal is asked to confirm it if any of these jobs runs."""
    from torchyard.cli.sweeps import table

    with connect() as client:
        found = [client.sweeps.get(ref) for ref in sweeps]
        if stops and prompt.can_ask() and any(one.trials.running for one in found):
            prompt.confirm("Stop their jobs?", (f"  {one.id}  {one.name}  {table.counts(one.trials)}" for one in found))
        changed = [change(client, one.id) for one in found]
    output.show(
        changed,
        (f"{one.id}  {table.paint_state(one.state, one.state)}, {table.counts(one.trials)}" for one in changed),
        as_json=as_json,
    )


def _confirm(sweeps: list[SweepView], *, jobs: bool) -> None:
    lines = (f"  {one.id}  {one.name}  {one.state}, {output.count(one.trials.total, 'trial')}" for one in sweeps)
    question = "these sweeps, their jobs and everything those stored?" if jobs else "these sweeps? Their jobs stay."
    prompt.confirm(f"Delete {question}", lines)
