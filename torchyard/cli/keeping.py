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
        list[str], typer.Argument(metavar="PATH…", help="Files, folders or patterns in the working folder.")
    ],
    *,
    timeout: Annotated[float, typer.Option(min=0, help="Give up after so many seconds without progress.")] = 60.0,
    as_json: Json = False,
) -> None:
    """Store files from a job's working folder.

    Waits until the files are stored. Works until the host deletes the folder: by default a day after the job
    finishes. `torchyard cp` downloads stored files.
    """
    from torchyard.contract.errors import Conflict

    with connect() as client:
        job_id = client.get(job).id
        found = client.jobs.keep(job_id, paths, timeout=timeout, on_progress=_show)
    if as_json:
        return output.write_json(found)
    if found.refused is not None and not found.files:
        raise Conflict(f"{found.worker}: {found.refused}")
    told = f"{output.count(found.files, 'file')}, {terminal.size(found.size)}" if found.files else "already stored"
    terminal.write(f"stored: {told}")
    if found.refused is not None:
        terminal.note(f"{found.worker}: {terminal.plain(found.refused)}")
    terminal.note(f"Download it: {output.command()} cp {job}:{terminal.plain(paths[0])} .")
    return None


def say_kept(client: Client, job: JobView) -> None:
    """Names the first files that were kept of the job's working folder, and the command that fetches one."""
    from torchyard.cli.copying import kept_path

    paths = [kept_path(file.path) for file in islice(client.jobs.kept_files(job.id), _MOST_NAMED + 1)]
    if paths:
        names = ", ".join(map(terminal.plain, paths[:_MOST_NAMED])) + (" and more" if len(paths) > _MOST_NAMED else "")
        source = shlex.quote(f"{job.id}:{terminal.plain(paths[0])}")
        terminal.note(f"stored {names}. Download: {output.command()} cp {source} .")


def _show(found: KeepView) -> None:
    if sys.stderr.isatty():
        line = f"{found.worker} has stored {output.count(found.files, 'file')}, {terminal.size(found.copied)}"
        sys.stderr.write(f"\r{terminal.plain(line)}\033[K" + ("\r\033[K" if found.answered_at is not None else ""))
        sys.stderr.flush()
