"""The command `forward`: ports of a running job at this machine's loopback."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli.arguments import JobArgument, connect
from torchyard.cli.reach.programs import require_posix
from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.cli.reach.forwarding import Wanted


def forward(
    job: JobArgument,
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="REMOTE[:LOCAL]…",
            help="A port, or the path of a Unix socket in the job's folder; LOCAL is the port on this machine.",
        ),
    ],
) -> None:
    """Forward ports of a running job to this machine.

    Forwards what a process of the job listens on at its loopback address. LOCAL defaults to the same port, or a free
    one if that is taken. Ctrl-C ends it.
    """
    require_posix()
    import asyncio

    from torchyard.cli.reach.forwarding import Forwarder, listening, loopback_of, wanted_of

    try:
        wanted: list[Wanted] = [wanted_of(text) for text in places]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="REMOTE[:LOCAL]") from None
    with connect() as client, ExitStack() as stack:
        found, host = client.get(job), loopback_of(client.server.url)
        listeners = [(each, stack.enter_context(listening(each, host))) for each in wanted]
        for each, sockets in listeners:
            terminal.write_piece(f"http://{host}:{sockets[0].getsockname()[1]}  {each.what} of {found.name}\n")
        asyncio.run(Forwarder(client, found.id).run(listeners))
