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

workers = typer.Typer(no_args_is_help=True, help="List, add, remove and update the machines that run jobs.")
UrlOption = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The service's address for the other machine. Default: as far as it is known."),
]

PipOption = Annotated[
    bool, typer.Option("--pip", help="For a machine without uv: a line that needs Python and its venv alone.")
]


@workers.command("ls")
def ls(*, as_json: Json = False) -> None:
    """List workers, their devices and the jobs on them.

    Lists the pools of clusters, too.
    """
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
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call the machine, such as box-b.")],
    *,
    url: UrlOption = None,
    pip: PipOption = False,
    user: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A user whose jobs it takes; else those of all. Repeatable."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the line by which another machine becomes a worker.

    The line is good for ten minutes and for one machine, which needs uv, or with --pip Python alone, and HTTPS to this
    service. It installs exactly the service's version.
    """
    with connect() as client:
        made = client.workers.code(name, users=user or None)
        code, address = pasted.checked(made), pasted.address(client, made, url)
    line = f"{pasted.installing(made, code, address, with_pip=pip)} join {address} --code {code.text}"
    pasted.show(made, line, who=f"on {name}", as_json=as_json)


@workers.command("rm")
def rm(workers: WorkersArgument, *, yes: Yes = False, as_json: Json = False) -> None:
    """Remove remote workers: their jobs return to the queue at once.

    Their tokens end. A machine joins again with a new line of `workers add`. Lost workers are taken out of the list.
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
        list[str] | None, typer.Option(metavar="NAME", help="A user whose jobs they take. Repeatable.")
    ] = None,
    everyone: Annotated[bool, typer.Option("--everyone", help="They take the jobs of all users again.")] = False,
    as_json: Json = False,
) -> None:
    """Have workers take the jobs of some users only.

    Jobs of others that run there go on, and start elsewhere after a stop.
    """
    if bool(user) == everyone:
        raise typer.BadParameter("give --user NAME, once or more, or --everyone")
    with connect() as client:
        known = client.workers.list()
        changed = [client.workers.set_users(named(known, name).id, user) for name in workers]
    whose = " and ".join(user or ["all users"])
    output.show(changed, (f"{worker.name} takes jobs of {whose}" for worker in changed), as_json=as_json)


@workers.command("update")
def update(
    *,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", help="Of the worker. Default: torchyard-worker in ~/.local/share."),
    ] = None,
) -> None:
    """Bring this machine, which has joined a service, to the service's version.

    Running jobs go on: the worker leaves them, and the new version takes them over.
    """
    from torchyard.cli.up import installing, remote
    from torchyard.host.joined import joined_data_dir, known

    root = (data_dir or joined_data_dir()).absolute()
    joined = known(root)
    wanted = installing.read_digests(joined)
    if installing.is_current(root, wanted):
        return terminal.note(f"This machine has what {joined.url} has.")
    installing.install(joined, root, wanted, say=terminal.note)
    restarted = remote.restart(root)
    return terminal.note("Updated. The worker starts again." if restarted else "Updated. The next start uses it.")
