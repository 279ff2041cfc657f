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

NOT_BUILT = "The web page is not built. In a clone of Torchyard, `make up` builds it and starts the service."


def open_page(
    *, print_only: Annotated[bool, typer.Option("--print", help="Print the address. Open no browser.")] = False
) -> None:
    """Open the service's web page in a browser.

    On the service's own machine the address logs you in, once, within a minute. On another machine, log in with a
    personal token.
    """
    with connect() as client:
        url = address(client)
    if url is None:
        terminal.note(NOT_BUILT)
        raise typer.Exit(1)
    if "#code=" not in url:
        terminal.note(f"Log in there with a personal token: {output.command()} tokens add")
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
