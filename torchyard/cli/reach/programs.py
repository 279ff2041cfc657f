"""The commands that run a program in a running job: `exec` and `shell`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli.arguments import JobArgument, connect
from torchyard.contract.errors import ConfigError, TorchyardError

if TYPE_CHECKING:
    from torchyard.client import Client
    from torchyard.contract.reach.orders import Order

_TERMINAL_PATIENCE_S, _PATIENCE_S = 12 * 3600.0, 60.0
"""For how long a program with and without a terminal waits for its client in the job."""

Rank = Annotated[int, typer.Option(min=0, metavar="N", help="Use the folder and variables of this rank.")]


def execute(
    job: JobArgument,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="PROGRAM [ARGS]…", help="The program, and its arguments.")
    ] = None,
    *,
    rank: Rank = 0,
    tty: Annotated[bool, typer.Option("--tty", "-t", help="Allocate a terminal.")] = False,
) -> None:
    """Run a program inside a running job.

    It runs in the job's sandbox and working folder, with its devices and packages. Standard streams and exit code are
    the program's. Options stand before JOB.
    """
    argv = words[1:] if words and words[0] == "--" else words
    if not argv:
        raise typer.BadParameter(
            "give a program after JOB, such as `exec JOB -- nvidia-smi`; for a shell use `shell JOB`"
        )
    with connect() as client:
        raise typer.Exit(attach(client, client.get(job).id, argv, rank=rank, has_terminal=tty))


def shell(job: JobArgument, *, rank: Rank = 0) -> None:
    """Open a shell inside a running job.

    It runs in the job's sandbox, with its devices and packages. The job continues when the shell ends. `~.` at the
    start of a line disconnects. After a lost connection it reconnects by itself, for up to 12 hours.
    """
    with connect() as client:
        raise typer.Exit(attach(client, client.get(job).id, [], rank=rank, has_terminal=True))


def attach(client: Client, job_id: str, argv: list[str], *, rank: int, has_terminal: bool) -> int:
    """Runs a program in a job at the standard streams of this process; without `argv`, the user's shell. Returns the
    exit code for this process.

    Raises TorchyardError if it cannot be started, or its end is not known.
    """
    require_posix()
    import asyncio

    from torchyard.cli.reach import ownterminal
    from torchyard.contract.reach.orders import Order

    own = ownterminal.current(0) if has_terminal else None
    try:
        order = Order(kind="program", argv=argv, rank=rank, terminal=own)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return asyncio.run(_attach(client, job_id, order))


def require_posix() -> None:
    """Raises ConfigError on systems without terminals and signals as POSIX has them."""
    if os.name != "posix":
        raise ConfigError("this command needs Linux or macOS; on Windows, use it in WSL")


async def _attach(client: Client, job_id: str, order: Order) -> int:
    from torchyard.cli.reach.reaching import end, explained, open_reach
    from torchyard.cli.reach.session import Session, tell

    has_terminal = order.terminal is not None
    patience = _TERMINAL_PATIENCE_S if has_terminal else _PATIENCE_S
    reach = await open_reach(client, job_id, order, patience=patience, tell=tell)
    is_raw = has_terminal and os.isatty(0)
    session = Session(reach, has_terminal=has_terminal, is_raw=is_raw, end=lambda: end(client, reach.id))
    try:
        return await session.run()
    except TorchyardError as error:
        raise await explained(client, reach, error) from None
