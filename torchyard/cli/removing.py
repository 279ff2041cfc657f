"""The command `rm`: removes ended jobs, and says how much that frees."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli import choosing, output, prompt
from torchyard.cli.arguments import Json, connect
from torchyard.cli.choosing import Everybody, Filter, Found, InStates, SomeJobs, WithLabels, Yes
from torchyard.host import terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchyard.client import Client
    from torchyard.contract.jobs.views import JobSummary, JobView

DryRemoval = Annotated[
    bool, typer.Option("--dry-run", help="List what would be deleted, and its size. Delete nothing.")
]
_MOST_SIZES = 1000
"""Jobs of which the service tells how much they take, the largest first."""


def rm(
    jobs: SomeJobs = None,
    *,
    state: InStates = None,
    label: WithLabels = None,
    search: Found = None,
    every: Everybody = False,
    dry_run: DryRemoval = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete finished jobs and everything they stored."""
    where = Filter(state, label, search, every, dry_run)
    filtered = choosing.by_filter(jobs, where)
    with connect() as client:
        sizes = _sizes(client)
        if filtered and not dry_run:
            choosing.act_on_all("delete", where, yes=yes, as_json=as_json)
            left = _sizes(client)
            return _say_freed(sum(size for job_id, size in sizes.items() if job_id not in left))
        found = _matching(client, where) if filtered else _named(client, jobs or ())
        if dry_run:
            return _say_found(found, sizes, as_json=as_json)
        if not yes:
            prompt.confirm("Delete these jobs with their metrics, logs and checkpoints?", _lines(found, sizes))
        output.do_each([job.id for job in found], client.jobs.delete, "deleted", as_json=as_json)
    return _say_freed(_total(found, sizes))


def _sizes(client: Client) -> dict[str, int]:
    """Returns the bytes that your jobs take, in the service and in working folders."""
    use = client.disk_use(limit=_MOST_SIZES)
    return {job.job_id: job.stored_bytes + sum(each.size for each in job.folders) for job in use.jobs}


def _matching(client: Client, where: Filter) -> Sequence[JobSummary]:
    """Returns the ended jobs that the filter finds and that you may remove."""
    me = client.me()
    # pyrefly: ignore[open-unpacking] it has neither `sort` nor `limit`
    found = [job for job in client.jobs.list(**where.matching(client)) if job.state.terminal]
    return [job for job in found if me.role == "admin" or job.owner == me.name]


def _named(client: Client, names: Sequence[str]) -> Sequence[JobView]:
    """Returns each named job once. Raises Conflict if one has not ended."""
    from torchyard.contract.errors import Conflict

    found = {job.id: job for job in (client.get(ref).view for ref in names)}
    for job in found.values():
        if not job.state.terminal:
            raise Conflict(f"{job.name} is {job.state}; cancel it first: {output.command()} cancel {job.id}")
    return [*found.values()]


def _say_found(found: Sequence[JobView | JobSummary], sizes: dict[str, int], *, as_json: bool) -> None:
    if as_json:
        told = [{"id": job.id, "name": job.name, "bytes": sizes.get(job.id, 0)} for job in found]
        return terminal.write(json.dumps({"jobs": told, "bytes": _total(found, sizes)}))
    for line in _lines(found, sizes):
        terminal.write(line)
    return terminal.write(f"{output.count(len(found), 'job')}, {terminal.size(_total(found, sizes))}")


def _lines(found: Sequence[JobView | JobSummary], sizes: dict[str, int]) -> list[str]:
    return [
        f"  {job.id}  {terminal.plain(job.name)}  {output.state(job)} {terminal.ago(job.finished_at or job.created_at)}"
        f"  {terminal.size(sizes.get(job.id, 0))}"
        for job in found
    ]


def _total(found: Sequence[JobView | JobSummary], sizes: dict[str, int]) -> int:
    return sum(sizes.get(job.id, 0) for job in found)


def _say_freed(size: int) -> None:
    terminal.note(f"Freed {terminal.size(size)}.")
