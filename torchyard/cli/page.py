"""The page of the service in a browser."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli import output
from torchyard.cli.arguments import connect
from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.client import Client

NOT_BUILT = "The page is not built: in a clone of Torchyard, `make up` builds it and starts the service."


def open_page(
    *, print_only: Annotated[bool, typer.Option("--print", help="Print the address, and open no browser.")] = False
) -> None:
    """Open the page of the service in a browser.

    The browser is logged in where the service runs on this machine.

    The address logs in once, within a minute. On another machine's page one logs in with a personal token.
    """
    with connect() as client:
        url = address(client)
    if url is None:
        terminal.note(NOT_BUILT)
        raise typer.Exit(1)
    if "#code=" not in url:
        terminal.note(f"Log in there with a personal token, such as `{output.command()} tokens add` makes.")
    if print_only or not _opens(url):
        terminal.write(url)


def address(client: Client) -> str | None:
    """Returns the page's address, with a login code if the server is on this machine; None if it has no page."""
    from torchyard.contract.errors import Forbidden

    url = f"{client.server.url}/"
    try:
        made = client.login_code()
    except Forbidden:
        return url
    return f"{url}#code={made.code}" if made.has_page else None


def _opens(url: str) -> bool:
    """Opens the address in a browser, and returns whether there is one. One in a terminal cannot show the page."""
    import webbrowser

    graphical = sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    return graphical and webbrowser.open(url)
