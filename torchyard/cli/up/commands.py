"""Commands that run the service on this machine."""

from collections.abc import Iterable
import contextlib
import json
from pathlib import Path
import shlex
import sys
from typing import Annotated

import typer

from torchyard.cli import output, page
from torchyard.cli.arguments import Json
from torchyard.host import terminal
from torchyard.host.datadir import parse_allowed_paths

DataDirOption = Annotated[Path, typer.Option("--data-dir", help="Where everything is kept.")]


def up(
    *,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, envvar="TORCHYARD_PORT", help="Port to listen on; 0 takes a free one.")
    ] = 8000,
    data_dir: DataDirOption = Path(".torchyard"),
    cpu_slots: Annotated[
        int | None, typer.Option(min=0, help="CPU slots to offer where there is no GPU.", show_default=False)
    ] = None,
    allow_path: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DIR[:rw]",
            help="A folder below which jobs may name file:// data and code; with :rw they may write it. Repeatable.",
        ),
    ] = None,
    database: Annotated[str | None, typer.Option(metavar="URL", help="SQL database, instead of SQLite.")] = None,
    redis: Annotated[str | None, typer.Option(metavar="URL", help="Redis, instead of an embedded one.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only check that it can start here, and start nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run the whole service here, in the foreground.

    Starts the API, a worker, a controller, the database and the queue, and starts again what dies.
    Ctrl-C stops it cleanly.
    """
    from torchyard.cli.up.service import Options, Service
    from torchyard.host.listening import is_loopback

    options = Options(host, port, data_dir, cpu_slots, _allowed(allow_path or ()), database, redis)
    service = Service(options, say=_say)
    if check:
        return service.check()
    if not is_loopback(host):
        _say(f"Warning: {host} is reachable from the network, unencrypted; whoever has the token can run code here.")

    def on_ready(url: str, token: str) -> None:
        if as_json:
            sys.stdout.write(json.dumps({"url": url, "token": token, "data_dir": str(service.data.root)}) + "\n")
        else:
            sys.stdout.write(f"URL    {url}\ntoken  {token}\n")
        sys.stdout.flush()
        if not as_json:
            _say_page(url, token)
        _say(f"data   {service.data.root}\nlogs   {service.data.logs}/{{api,worker,controller,redis}}.log")
        _say(f"Ready. In another terminal: {output.command()} run train.py, or submit FILE -f. Ctrl-C stops.")
        file = shlex.quote(str(service.data.root / "token"))
        _say(f"To use it from other folders, once: {output.command()} login {url} --token-stdin < {file}")

    _say("Starting …")
    service.run(on_ready)
    return _say("Stopped.")


def _say_page(url: str, token: str) -> None:
    """Says where the page is, with a code that logs in."""
    from torchyard.client import Client
    from torchyard.contract.errors import TorchyardError

    try:
        with Client(url, token, patience=5) as client:
            address = page.address(client)
    except TorchyardError as error:
        return _say(f"The page cannot be opened: {error}")
    if address is None:
        return _say(page.NOT_BUILT)
    again = f" (it logs in once, within a minute; then: {output.command()} open)" if "#code=" in address else ""
    return _say(f"page   {address}{again}")


def _allowed(folders: Iterable[str]) -> dict[Path, bool]:
    """Returns the existing folders with links resolved, and whether jobs may write each of them."""
    found: dict[Path, bool] = {}
    for text in folders:
        for path, writable in parse_allowed_paths(text).items():
            if not path.is_dir():
                raise typer.BadParameter(f"{path} is not a folder", param_hint="--allow-path")
            found[path.resolve()] = writable
    return found


def demo(*, data_dir: DataDirOption = Path(".torchyard"), as_json: Json = False) -> None:
    """Train on real digits and check what comes out.

    Uses the service that runs on the data directory, or starts one for as long as it takes.
    """
    from torchyard.cli.up.demo import run

    raise typer.Exit(run(data_dir, as_json=as_json))


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # the service goes on without its terminal
        terminal.note(text)
