"""The commands `data`: upload folders that jobs read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from torchyard.cli import output
from torchyard.cli.arguments import Json, connect
from torchyard.host import terminal

data = typer.Typer(no_args_is_help=True, help="Upload data that your jobs read.")


@data.callback()
def group() -> None:
    """Makes `push` a command of a group, although it is the only one."""


@data.command("push")
def push(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder.", exists=True, file_okay=False)],
    *,
    max_size: Annotated[str, typer.Option(metavar="SIZE", help="The most that is packed: 500MiB.")] = "2GiB",
    as_json: Json = False,
) -> None:
    """Upload a folder, and print what names it in a job. The same files are uploaded once.

    Like `run`, it leaves out what git ignores and .torchyardignore names.
    """
    from torchyard.cli.run.keys import parse_size
    from torchyard.cli.run.upload import left_out, packed, upload

    try:
        most = parse_size(max_size)
    except ValueError as error:
        raise typer.BadParameter(f"--max-size {error}") from None
    with connect() as client:
        client.me()
        with packed(folder, max_size=most) as bundle:
            terminal.note(f"{output.count(len(bundle.files), 'file')}, {terminal.size(bundle.size)}")
            for line in left_out(bundle):
                terminal.note(f"left out   {terminal.plain(line)}")
            upload(client, bundle)
            found = {"url": bundle.url, "sha256": bundle.sha256, "size": bundle.size, "files": len(bundle.files)}
    terminal.write(json.dumps(found) if as_json else bundle.url)
    terminal.note(f"A job reads it with: {output.command()} run --mount NAME={bundle.url} PROGRAM")
