"""Connects `run` to a server: the one that is known, else one that it starts on this machine."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from torchyard.cli.arguments import connect
from torchyard.host import terminal
from torchyard.host.datadir import own_data_dir

if TYPE_CHECKING:
    from torchyard.client import Client


def connect_or_start() -> Client:
    """Returns a client of the known server. Starts the user's own service where none is known."""
    from torchyard.client.discovery import is_any_known

    if is_any_known():
        return connect()
    from torchyard.cli import output, page
    from torchyard.cli.up import own

    terminal.note("No server is set. Starting one on this machine …")
    running = own.start(options=("--port=0", f"--end-when-idle={own.IDLE}"), meanwhile=_load_what_sends)
    terminal.note(
        f"Started {running.url} (data directory {own_data_dir()}). It stops after {own.IDLE} "
        f"without use, unless it has schedules. To stop it now: {output.command()} down"
    )
    client = connect()
    terminal.note(f"page   {page.address(client) or page.NOT_BUILT}")
    return client


def _load_what_sends() -> None:
    """Imports what is needed once the service answers: the client and its models."""
    for name in ("torchyard.client.client", "torchyard.cli.run.spec", "torchyard.cli.run.upload"):
        import_module(name)
