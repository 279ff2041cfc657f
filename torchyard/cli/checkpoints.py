"""Commands that list and download checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli import output
from torchyard.cli.arguments import JobArgument, Json, connect
from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.client import Client
    from torchyard.contract.files.views import CheckpointView
    from torchyard.contract.jobs.views import JobView

_CAPTURED = "captured"
"""The source of a checkpoint that is a file or a folder which the program wrote."""


def checkpoints(job: JobArgument, *, as_json: Json = False) -> None:
    """List a job's checkpoints, newest first."""
    with connect() as client:
        shown = client.get(job).view
        found = [*client.jobs.checkpoints(shown.id)]
    if as_json:
        return output.write_json(found)
    for line in checkpoint_lines(found):
        terminal.write(line)
    if not found:
        terminal.note("It has saved no checkpoint." if shown.state.terminal else "No checkpoints yet.")
    return None


def checkpoint_lines(found: list[CheckpointView]) -> list[str]:
    """Returns the lines of a table of checkpoints."""
    captured, again = any(item.source == _CAPTURED for item in found), any(item.remeasured for item in found)
    file, measured = ("FILE",) if captured else (), ("MEASURED AGAIN",) if again else ()
    headers = ("CHECKPOINT", "STEP", "METRICS", *measured, "ALIASES", *file, "EPOCH", "SIZE")
    rows = [_row(item, with_file=captured, with_measured=again) for item in found]
    return output.table(headers, rows)


def download(
    job: JobArgument,
    *,
    best: Annotated[bool, typer.Option("--best", help="The best checkpoint by the job's monitored metric.")] = False,
    latest: Annotated[bool, typer.Option("--latest", help="The newest checkpoint.")] = False,
    epoch: Annotated[int | None, typer.Option(min=1, help="The checkpoint of epoch N.")] = None,
    ref: Annotated[str | None, typer.Option(help="A checkpoint's id, or an alias such as step-300.")] = None,
    file: Annotated[
        str | None, typer.Option(help="The file to download, such as model.safetensors; state.pt by default.")
    ] = None,
    to: Annotated[
        Path, typer.Option("--output", "-o", help="The file or folder to write, or the folder for it.")
    ] = Path(),
    as_json: Json = False,
) -> None:
    """Download a checkpoint.

    Takes the best checkpoint, or the latest where none is the best. Verifies its sha256, and prints its path.

    One in several files becomes a folder.

    If a download was interrupted, the same command continues it.
    """
    from torchyard.cli.progress import Transfer

    choices = (("best", best), ("latest", latest), (f"epoch-{epoch}", epoch), (ref or "", ref))
    names = [name for name, given in choices if given]
    if len(names) > 1:
        raise typer.BadParameter("choose one of --best, --latest, --epoch and --ref")
    with connect() as client:
        found = client.get(job).view
        checkpoint = _chosen(client, found, names[0] if names else None)
        with Transfer() as transfer:
            path = client.jobs.download(found.id, checkpoint.id, file=file, to=to, on_progress=transfer.show)
    if as_json:
        terminal.write(json.dumps({"path": str(path), "checkpoint": checkpoint.model_dump(mode="json")}))
    else:
        terminal.write(str(path))
    sha256 = next((item.sha256 for item in checkpoint.files if item.path == file), checkpoint.sha256)
    terminal.note(f"Verified: sha256 {sha256}.")


def has_left_files(client: Client, job_id: str) -> bool:
    """Returns whether files of the job are stored that are no checkpoints."""
    found = (client.jobs.kept_files(job_id), client.jobs.artifacts(job_id))
    return any(next(iter(files), None) is not None for files in found)


def _chosen(client: Client, job: JobView, ref: str | None) -> CheckpointView:
    """Raises NotFound, which says where the files are that a job without checkpoints left."""
    from torchyard.contract.errors import NotFound

    try:
        return client.jobs.checkpoint(job.id, ref)
    except NotFound:
        if ref is not None or next(iter(client.jobs.checkpoints(job.id)), None) is not None:
            raise
        named = f"; files that it left: {output.command()} cp {job.id}:" if has_left_files(client, job.id) else ""
        raise NotFound(f"job {job.id} has saved no checkpoint{named}") from None


def _row(checkpoint: CheckpointView, *, with_file: bool, with_measured: bool) -> tuple[str, ...]:
    captured = _written(checkpoint) if checkpoint.source == _CAPTURED else ""
    return (
        checkpoint.id,
        str(checkpoint.step) if checkpoint.step or not captured else "",
        output.metrics(dict(sorted(checkpoint.metrics.items(), key=lambda item: not item[0].startswith("val/")))),
        *((output.metrics(checkpoint.remeasured.metrics if checkpoint.remeasured else {}),) if with_measured else ()),
        "not whole" if checkpoint.damaged else ", ".join(checkpoint.aliases),
        *((captured,) if with_file else ()),
        "" if checkpoint.epoch is None else str(checkpoint.epoch),
        terminal.size(checkpoint.size),
    )


def _written(checkpoint: CheckpointView) -> str:
    """Returns the path of the file or folder that the program wrote."""
    if checkpoint.folder is not None:
        return f"{checkpoint.folder.path}/"
    return checkpoint.files[0].path if checkpoint.files else ""
