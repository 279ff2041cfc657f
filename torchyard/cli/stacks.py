"""The command that shows where the ranks of a job are."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli import output
from torchyard.cli.arguments import JobArgument, Json, connect
from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.contract.telemetry.views import RankStacksView

_BOLD = "1"


def stacks(
    job: JobArgument,
    *,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait for the worker.")] = 15.0,
    as_json: Json = False,
) -> None:
    """Print the Python stacks of each rank of a running job.

    Shows all threads. The job continues.
    """
    with connect() as client:
        view = client.get(job).view
        found = client.jobs.stacks(view.id, timeout=timeout)
    hosts = dict(enumerate(device.host for device in view.devices))
    output.show(
        found, ["\n\n".join(_section(rank, host=hosts.get(rank.rank)) for rank in found.ranks)], as_json=as_json
    )


def _section(rank: RankStacksView, *, host: str | None) -> str:
    """`host`: the name of its node, where a cluster chose it."""
    where = "" if host is None else f" on {terminal.plain(host)}"
    heading = terminal.paint(f"rank {rank.rank}{where}", _BOLD, sys.stdout)
    note = f": {rank.note}" if rank.note else ""
    return f"{heading}{note}" + (f"\n{rank.text.rstrip()}" if rank.text else "")
