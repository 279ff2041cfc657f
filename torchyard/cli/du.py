"""The command `du`: what your jobs take on disks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli import output
from torchyard.cli.arguments import Json, connect
from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.contract.cluster.usage import DiskUseView, JobUseView


def du(
    *,
    most: Annotated[int, typer.Option("-n", "--limit", min=1, max=1000, help="List the N largest jobs.")] = 20,
    as_json: Json = False,
) -> None:
    """Show how much storage your jobs use.

    Counts stored files and working folders on hosts. `torchyard rm JOB` deletes both. A working folder is also
    deleted some time after its job finishes.
    """
    with connect() as client:
        found = client.disk_use(limit=most)
    if not found.jobs:
        return output.show(found, [], notes=["Your jobs use no storage."], as_json=as_json)
    lines = output.table(("JOB", "NAME", "STORED", "FOLDER", "STATE", "ON"), map(_cells, found.jobs))
    return output.show(found, lines, notes=[_summary(found)], as_json=as_json)


def _cells(job: JobUseView) -> tuple[str, ...]:
    folder = sum(each.size for each in job.folders)
    hosts = ", ".join(each.host for each in job.folders)
    taken = [terminal.size(size) if size else "" for size in (job.stored_bytes, folder)]
    return (job.job_id, job.name, *taken, job.state, hosts)


def _summary(found: DiskUseView) -> str:
    shown = f"{output.count(len(found.jobs), 'job')} of {found.count}. " if found.count > len(found.jobs) else ""
    total = f"{terminal.size(found.stored_bytes)} stored, {terminal.size(found.folder_bytes)} in working folders"
    return f"{shown}Total of your jobs: {total}."
