"""The commands `edit`, `star` and `archive`: what a user notes of jobs."""

from __future__ import annotations

from contextlib import contextmanager
import os
from pathlib import Path
import shlex
import subprocess
import tempfile
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchyard.cli import choosing, named, output
from torchyard.cli.arguments import Json, connect, label_of
from torchyard.cli.choosing import DryRun, Everybody, Filter, Found, InStates, SomeJobs, WithLabels
from torchyard.host import terminal

if TYPE_CHECKING:
    from collections.abc import Generator

    from torchyard.client import Client
    from torchyard.contract.jobs.views import JobView

_MOST_NOTES_FILE = 1 << 20
"""Bytes that are read of a file with notes. The service takes fewer."""


def edit(
    jobs: SomeJobs = None,
    *,
    name: Annotated[str | None, typer.Option(help="The new name.")] = None,
    set_label: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Add or replace a label. Repeatable.")
    ] = None,
    remove_label: Annotated[list[str] | None, typer.Option(metavar="KEY", help="Remove a label. Repeatable.")] = None,
    priority: Annotated[int | None, typer.Option(help="The new priority (queued jobs).")] = None,
    notes: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Notes in Markdown; an empty text deletes them.")
    ] = None,
    notes_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Read the notes from this file; - reads stdin.")
    ] = None,
    editor: Annotated[bool, typer.Option("--editor", "-e", help="Edit the notes of one job in $EDITOR.")] = False,
    state: InStates = None,
    label: WithLabels = None,
    search: Found = None,
    every: Everybody = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Change the name, labels, notes or priority of jobs.

    A filter changes the labels of all matching jobs.
    """
    labels = {**dict(label_of(text) for text in set_label or ()), **dict.fromkeys(remove_label or ())}
    changes: dict[str, Any] = {"name": name, "priority": priority, "notes": _notes(notes, notes_file)}
    given = {key: value for key, value in changes.items() if value is not None}
    where = Filter(state, label, search, every, dry_run)
    if not (labels or given or editor):
        raise typer.BadParameter("give a change: --name, --set-label, --remove-label, --priority, --notes or --editor")
    if editor and ("notes" in given or len(jobs or ()) != 1):
        raise typer.BadParameter("--editor edits the notes of one job; it cannot be used with --notes or --notes-file")
    if choosing.by_filter(jobs, where):
        if given:
            raise typer.BadParameter(
                "a filter works only with --set-label and --remove-label; for other changes, give job names"
            )
        return choosing.act_on_all("label", where, yes=True, as_json=as_json, set_labels=labels)
    if dry_run:
        if given or editor:
            raise typer.BadParameter("--dry-run works only with --set-label and --remove-label")
        return choosing.preview("label", jobs or (), as_json=as_json, set_labels=labels)
    with connect() as client:
        changed = [_changed(client, ref, labels, given, editor=editor) for ref in jobs or ()]
    lines = (f"{job.id}  {job.name}  {output.labels(job)}".rstrip() for job in changed)
    return output.show(changed, lines, as_json=as_json)


def star(
    jobs: SomeJobs = None,
    *,
    remove: Annotated[bool, typer.Option("--remove", help="Remove your stars.")] = False,
    state: InStates = None,
    label: WithLabels = None,
    search: Found = None,
    every: Everybody = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Star jobs.

    `ps --starred` lists them. Only you see your stars.
    """
    where, action = Filter(state, label, search, every, dry_run), "unstar" if remove else "star"
    if choosing.by_filter(jobs, where):
        return choosing.act_on_all(action, where, yes=True, as_json=as_json)
    if dry_run:
        return choosing.preview(action, jobs or (), as_json=as_json)
    return choosing.act_on(action, jobs or (), as_json=as_json)


def archive(
    jobs: SomeJobs = None,
    *,
    undo: Annotated[bool, typer.Option("--undo", help="Take jobs out of the archive.")] = False,
    state: InStates = None,
    label: WithLabels = None,
    search: Found = None,
    every: Everybody = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Archive finished jobs.

    Lists leave archived jobs out. Their files stay. `ps --archived` lists them.
    """
    where, action = Filter(state, label, search, every, dry_run), "unarchive" if undo else "archive"
    if choosing.by_filter(jobs, where):
        return choosing.act_on_all(action, where, yes=True, as_json=as_json)
    if dry_run:
        return choosing.preview(action, jobs or (), as_json=as_json)
    return choosing.act_on(action, jobs or (), as_json=as_json)


def _notes(text: str | None, file: str | None) -> str | None:
    if text is not None and file is not None:
        raise typer.BadParameter("give --notes or --notes-file, not both")
    if file is None:
        return text
    try:
        return named.read(file, _MOST_NOTES_FILE).decode().replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise typer.BadParameter(f"{file} is not text in UTF-8") from None


def _changed(
    client: Client, ref: str, labels: dict[str, str | None], given: dict[str, Any], *, editor: bool
) -> JobView:
    """Changes a job and returns it. Raises Conflict, also if others have written notes while the editor was open."""
    job = client.get(ref).view
    edited = _edited(job) if editor else {}
    with _kept(job, edited.get("notes")):
        return _stored(client, job, labels, {**given, **edited})


def _stored(client: Client, job: JobView, labels: dict[str, str | None], given: dict[str, Any]) -> JobView:
    from torchyard.contract.errors import Conflict

    if labels:
        refused = client.jobs.act("label", [job.id], set_labels=labels).refused
        if refused:
            raise Conflict(refused[0].message)
    return client.jobs.update(job.id, **given) if given else client.get(job.id).view


@contextmanager
def _kept(job: JobView, written: str | None) -> Generator[None]:
    """Keeps what was written in the editor, and says where, if the block raises TorchyardError."""
    from torchyard.contract.errors import TorchyardError

    try:
        yield
    except TorchyardError:
        if written is not None:
            with tempfile.NamedTemporaryFile(
                "w", prefix=f"{job.name}-", suffix=".md", encoding="utf-8", delete=False
            ) as file:
                file.write(written)
            terminal.note(
                f"Your text is in {file.name}. To store it: {output.command()} edit {job.id} --notes-file {file.name}"
            )
        raise


def _edited(job: JobView) -> dict[str, str | None]:
    """Returns the notes as they are written in the user's editor, and as they were; nothing if they are the same."""
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{job.name}.md"
        file.write_text(job.notes, encoding="utf-8")
        if subprocess.run([*command, str(file)], check=False).returncode:
            raise typer.BadParameter(f"the editor {command[0]} has failed: nothing was changed")
        written = _notes(None, str(file))
    return {} if written in (None, job.notes) else {"notes": written, "notes_before": job.notes}
