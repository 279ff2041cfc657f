"""The command `dev`: a job without a program of its own, and a shell, a notebook or an editor in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchyard.cli import output
from torchyard.cli.arguments import connect
from torchyard.cli.reach.programs import attach, require_posix
from torchyard.cli.reach.ssh import SUFFIX
from torchyard.contract.errors import Conflict
from torchyard.contract.states import JobState
from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.client import Client, Job


def dev(
    *,
    devices: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="GPUs or CPU slots. Default: 1; with --from, the job's."),
    ] = None,
    time_limit: Annotated[
        str, typer.Option("--for", metavar="TIME", help="Stop the job after this time: 90m, 8h, 2d.")
    ] = "8h",
    idle_timeout: Annotated[
        str, typer.Option(metavar="TIME", help="Stop the job after this time without device use and key presses.")
    ] = "1h",
    name: Annotated[
        str | None, typer.Option(help="The job's name. Default: the folder's, with a number if taken.")
    ] = None,
    requirements: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A requirements file in the folder."),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="JOB", help="Start with a copy of this finished job's folder."),
    ] = None,
    notebook: Annotated[bool, typer.Option("--notebook", help="Open Jupyter instead of a shell.")] = False,
    editor: Annotated[
        bool, typer.Option("--editor", help="Print how to open it in VS Code, instead of a shell.")
    ] = False,
) -> None:
    """Start an interactive job, and open a shell in it.

    The job gets a copy of this folder, or with --from of a finished job's. It waits in the queue and counts toward
    quotas like any job. When the shell ends, the job continues.
    """
    require_posix()
    if notebook and editor:
        raise typer.BadParameter("use either --notebook or --editor, not both")
    if from_ is not None and requirements is not None:
        raise typer.BadParameter("omit --requirements: --from already sets the packages")
    with connect() as client:
        job = _submit(
            client,
            devices=devices,
            name=name,
            requirements=requirements,
            from_=from_,
            limits={"time_limit": time_limit, "idle_timeout": idle_timeout},
        )
        try:
            _wait(client, job)
            code = _open(client, job, notebook=notebook, editor=editor)
        finally:
            say, shown = output.command(), terminal.plain(job.name)
            terminal.note(f"{shown} continues. Open a shell: {say} shell {shown}. Stop it: {say} cancel {shown}")
    raise typer.Exit(code)


def _submit(
    client: Client,
    *,
    devices: int | None,
    name: str | None,
    requirements: str | None,
    from_: str | None,
    limits: dict[str, str],
) -> Job:
    if from_ is not None:
        named = {} if name is None else {"name": name}
        job = client.jobs.retry(client.get(from_).id, devices=devices, dev={**limits, **named})
    else:
        from torchyard.contract.spec.dev import WAITS

        program, *args = WAITS
        spec: Any = limits  # the keys of a job spec beside the arguments of `run`
        job = client.run(program, args=args, devices=devices or 1, name=name, requirements=requirements, **spec)
    terminal.note(f"{terminal.plain(job.name)} is queued. Ctrl-C leaves it in the queue.")
    return job


def _wait(client: Client, job: Job) -> None:
    """Waits until the job runs. Raises Conflict if it ends instead."""
    from torchyard.client.blocking import ask
    from torchyard.client.waiting import wait_for_change

    said, view = "", job.view
    while view.state is not JobState.RUNNING:
        if view.state.terminal:
            raise Conflict(f"the job has ended: {output.state(view)}, {view.status_reason.message}")
        if view.status_reason.message != said:
            said = view.status_reason.message
            terminal.note(f"{view.state}: {terminal.plain(said)}")
        view = ask(client, wait_for_change, view)


def _open(client: Client, job: Job, *, notebook: bool, editor: bool) -> int:
    if notebook:
        from torchyard.cli.reach.notebook import open_notebook

        return open_notebook(client, job.refresh())
    if editor:
        say = output.command()
        terminal.write(f"code --remote ssh-remote+{terminal.plain(job.name)}{SUFFIX}")
        terminal.note(f"VS Code needs the extension Remote-SSH, and the output of `{say} ssh-config` in ~/.ssh/config.")
        return 0
    return attach(client, job.id, [], rank=0, has_terminal=True)
