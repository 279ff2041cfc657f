"""The commands `workers`: list, add and remove the machines that run jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchyard.cli import output, pasted, prompt
from torchyard.cli.arguments import Json, WorkersArgument, connect
from torchyard.cli.choosing import Yes
from torchyard.cli.cluster import named, worker_lines
from torchyard.host import terminal

workers = typer.Typer(no_args_is_help=True, help="Manage workers: the machines that run jobs.")
UrlOption = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The service's address, as the other machine reaches it. Default: detected."),
]

PipOption = Annotated[bool, typer.Option("--pip", help="For a machine without uv: use Python's venv.")]


@workers.command("ls")
def ls(*, as_json: Json = False) -> None:
    """List workers and pools, their devices and jobs."""
    with connect() as client:
        found = client.workers.list()
    output.show(
        found,
        worker_lines(found),
        nothing=f"No workers. `{output.command()} up` starts a worker with the service.",
        as_json=as_json,
    )


@workers.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name for the machine, such as box-b.")],
    *,
    url: UrlOption = None,
    pip: PipOption = False,
    user: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Run only jobs of this user. Default: all users. Repeatable."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print a line that makes another machine a worker.

    The line works once, within ten minutes. The machine needs uv (with --pip: Python) and HTTPS to this service. It
    installs exactly the service's version.
    """
    with connect() as client:
        made = client.workers.code(name, users=user or None)
        code, address = pasted.checked(made), pasted.address(client, made, url)
    line = f"{pasted.installing(made, code, address, with_pip=pip)} join {address} --code {code.text}"
    pasted.show(made, line, who=f"on {name}", as_json=as_json)


@workers.command("rm")
def rm(workers: WorkersArgument, *, yes: Yes = False, as_json: Json = False) -> None:
    """Remove remote workers. Their jobs return to the queue at once.

    Their tokens are revoked. To join again, a machine needs a new line of `workers add`. Removes also lost workers
    from the list.
    """
    with connect() as client:
        known = client.workers.list()
        chosen = [named(known, name) for name in workers]
        names = {worker.id: worker.name for worker in chosen}
        if not yes:
            devices = [(worker.name, device) for worker in chosen for device in worker.devices]
            held = sorted({f"{device.job_id} runs on {name}" for name, device in devices if device.job_id})
            prompt.confirm(f"remove {', '.join(names.values())}?", held)
        output.do_each(list(names), client.workers.remove, "removed", as_json=as_json)


@workers.command("limit")
def limit(
    workers: WorkersArgument,
    *,
    user: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Run only jobs of this user. Repeatable.")
    ] = None,
    everyone: Annotated[bool, typer.Option("--everyone", help="Run jobs of all users again.")] = False,
    as_json: Json = False,
) -> None:
    """Limit workers to the jobs of some users.

    Running jobs of others continue, but restart elsewhere.
    """
    if bool(user) == everyone:
        raise typer.BadParameter("give --user NAME, once or more, or --everyone")
    with connect() as client:
        known = client.workers.list()
        changed = [client.workers.set_users(named(known, name).id, user) for name in workers]
    whose = " and ".join(user or ["all users"])
    output.show(changed, (f"{worker.name} runs jobs of {whose}" for worker in changed), as_json=as_json)


@workers.command("update")
def update(
    *,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", help="The worker's data directory. Default: ~/.local/share/torchyard-worker."),
    ] = None,
) -> None:
    """Update this joined machine to the service's version.

    Running jobs continue under the new version.
    """
    from torchyard.cli.up import installing, remote
    from torchyard.host.joined import joined_data_dir, known

    root = (data_dir or joined_data_dir()).absolute()
    joined = known(root)
    wanted = installing.read_digests(joined)
    if installing.is_current(root, wanted):
        return terminal.note(f"This machine already has the version of {joined.url}.")
    installing.install(joined, root, wanted, say=terminal.note)
    restarted = remote.restart(root)
    return terminal.note("Updated. Restarting the worker." if restarted else "Updated. The next start uses it.")
