"""Files of a job's working folder in the service: `keep` stores some, `run` names what was kept at the end."""

from __future__ import annotations

from itertools import islice
import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli import output
from torchyard.cli.arguments import JobArgument, Json, connect
from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.client import Client
    from torchyard.contract.files.views import KeepView
    from torchyard.contract.jobs.views import JobView

_MOST_NAMED = 3


def keep(
    job: JobArgument,
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH…", help="Files and folders of its working folder, or patterns of them.")
    ],
    *,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait while nothing more is copied.")] = 60.0,
    as_json: Json = False,
) -> None:
    """Store files of a job's working folder.

    Works as long as its host has the folder. Waits until the files are stored.

    The host keeps the folder for a day after the job's end, unless its operator says otherwise. `torchyard cp` fetches
    what is stored.
    """
    from torchyard.contract.errors import Conflict

    with connect() as client:
        job_id = client.get(job).id
        found = client.jobs.keep(job_id, paths, timeout=timeout, on_progress=_show)
    if as_json:
        return output.write_json(found)
    if found.refused is not None and not found.files:
        raise Conflict(f"{found.worker}: {found.refused}")
    told = f"{output.count(found.files, 'file')}, {terminal.size(found.size)}" if found.files else "stored already"
    terminal.write(f"kept: {told}")
    if found.refused is not None:
        terminal.note(f"{found.worker}: {terminal.plain(found.refused)}")
    terminal.note(f"`{output.command()} cp {job}:{terminal.plain(paths[0])} .` fetches what is kept.")
    return None


def say_kept(client: Client, job: JobView) -> None:
    """Names the first files that were kept of the job's working folder, and the command that fetches one."""
    from torchyard.cli.copying import kept_path

    paths = [kept_path(file.path) for file in islice(client.jobs.kept_files(job.id), _MOST_NAMED + 1)]
    if paths:
        names = ", ".join(map(terminal.plain, paths[:_MOST_NAMED])) + (" and more" if len(paths) > _MOST_NAMED else "")
        source = shlex.quote(f"{job.id}:{terminal.plain(paths[0])}")
        terminal.note(f"kept {names}: {output.command()} cp {source} .")


def _show(found: KeepView) -> None:
    if sys.stderr.isatty():
        line = f"{found.worker} has stored {output.count(found.files, 'file')} and copied {terminal.size(found.copied)}"
        sys.stderr.write(f"\r{terminal.plain(line)}\033[K" + ("\r\033[K" if found.answered_at is not None else ""))
        sys.stderr.flush()
