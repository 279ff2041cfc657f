"""The commands `data`: upload folders that jobs read, and pack them into shards."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchyard.cli import output
from torchyard.cli.arguments import Json, connect
from torchyard.host import terminal

data = typer.Typer(no_args_is_help=True, help="Upload data for jobs, or pack it into shards.")


@data.command("push")
def push_folder(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to upload.", exists=True, file_okay=False)],
    *,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="A name for it. Jobs use it as --mount ./data=data:NAME.")
    ] = None,
    max_size: Annotated[str, typer.Option(metavar="SIZE", help="Refuse a larger folder. Default: 500MiB.")] = "2GiB",
    as_json: Json = False,
) -> None:
    """Upload a folder for jobs, and print its name.

    Unchanged files are uploaded once. Files that git ignores are included. Files in .torchyardignore, .git and .env
    are left out, and listed.
    """
    from torchyard.cli.run.upload import packing, push
    from torchyard.cli.run.values import parse_size
    from torchyard.client.packing.bundle import pack

    try:
        most = parse_size(max_size)
    except ValueError as error:
        raise typer.BadParameter(f"--max-size {error}") from None
    with connect() as client:
        client.me()
        with packing():
            bundle = pack(folder, max_size=most, asks_git=False)
        with bundle:
            push(client, bundle)
            if name is not None:
                client.bundles.name(bundle.sha256, name)
            found = {"url": bundle.url, "sha256": bundle.sha256, "size": bundle.size, "files": len(bundle.files)}
    output.show(found, [bundle.url], as_json=as_json)
    source = bundle.url if name is None else f"data:{name}"
    terminal.note(f"Use it in a job: {output.command()} run --mount ./data={source} PROGRAM")


@data.command("shard")
def shard(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to upload.", exists=True, file_okay=False)],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A new folder for the shards.")],
    *,
    size: Annotated[str, typer.Option(metavar="SIZE", help="The maximum size of a shard. Default: 500MiB.")] = "256MiB",
    as_json: Json = False,
) -> None:
    """Pack a folder of pictures into shards.

    Shards are a few large tar files with an index. A job reads them like the folder.
    """
    from torchyard.cli.progress import Transfer
    from torchyard.cli.run.values import parse_size
    from torchyard.cli.sharding import find_files, write_shards

    try:
        most = parse_size(size)
    except ValueError as error:
        raise typer.BadParameter(f"--size {error}") from None
    found = find_files(folder)
    with Transfer("shards", continues=False) as transfer:
        index = write_shards(found, out, most=most, on_bytes=lambda done: transfer.show(done, total=found.bytes))
    terminal.note(f"{output.count(len(index.entries), 'file')} in {output.count(len(index.shards), 'shard')}")
    url = out.absolute().as_uri()
    made = {"url": url, "files": len(index.entries), "shards": len(index.shards), "size": sum(index.shards.values())}
    output.show(made, [url], as_json=as_json)
