"""Commands that list and download checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli import output
from torchyard.cli.arguments import JobArgument, Json, WeightsArgument, connect
from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.cli.weights import Weights
    from torchyard.client import Client
    from torchyard.contract.files.views import CheckpointView

_CAPTURED = "captured"
"""The source of a checkpoint that is a file or a folder which the program wrote."""


def checkpoints(job: JobArgument, *, as_json: Json = False) -> None:
    """List a job's checkpoints, newest first."""
    from torchyard.client.references import without_checkpoints

    with connect() as client:
        shown = client.get(job).view
        found = [*client.jobs.checkpoints(shown.id)]
    output.show(
        found,
        checkpoint_lines(found),
        nothing=f"{without_checkpoints(shown.id)}." if shown.state.terminal else "No checkpoints yet.",
        as_json=as_json,
    )


def checkpoint_lines(found: list[CheckpointView]) -> list[str]:
    """Returns the lines of a table of checkpoints."""
    captured, again = any(item.source == _CAPTURED for item in found), any(item.remeasured for item in found)
    file, measured = ("FILE",) if captured else (), ("RE-EVALUATED",) if again else ()
    headers = ("CHECKPOINT", "STEP", "METRICS", *measured, "ALIASES", *file, "EPOCH", "SIZE")
    rows = [_row(item, with_file=captured, with_measured=again) for item in found]
    return output.table(headers, rows)


def download(
    named: WeightsArgument,
    *,
    best: Annotated[bool, typer.Option("--best", help="The best checkpoint, by the monitored metric.")] = False,
    latest: Annotated[bool, typer.Option("--latest", help="The newest checkpoint.")] = False,
    epoch: Annotated[int | None, typer.Option(min=1, help="The checkpoint of epoch N.")] = None,
    ref: Annotated[str | None, typer.Option(help="A checkpoint's id or alias, such as step-300.")] = None,
    file: Annotated[str | None, typer.Option(help="Download only this file. Default: state.pt.")] = None,
    to: Annotated[Path, typer.Option("--output", "-o", help="The file or folder to write.")] = Path(),
    as_json: Json = False,
) -> None:
    """Download a checkpoint or a model.

    By default it is the job's best checkpoint, else the latest. The sha256 is verified, and the path printed. A
    checkpoint of several files becomes a folder. After an interruption, run the same command to continue.
    """
    from torchyard.cli.progress import Transfer
    from torchyard.contract.spec.initial import MODEL

    choices = (("best", best), ("latest", latest), (f"epoch-{epoch}", epoch), (ref or "", ref))
    refs = [name for name, given in choices if given]
    if len(refs) > 1:
        raise typer.BadParameter("use only one of --best, --latest, --epoch and --ref")
    if refs and ("/" in named or named.startswith(MODEL)):
        raise typer.BadParameter(f"{named} already names a checkpoint: omit --best, --latest, --epoch and --ref")
    with connect() as client:
        found = _chosen(client, "/".join([named, *refs]))
        with Transfer() as transfer:
            path = found.fetch(file=file, to=to, on_progress=transfer.show)
    kind = "model" if found.job is None else "checkpoint"
    whole = {"path": str(path), kind: found.listed.model_dump(mode="json")}
    output.show(whole, [str(path)], as_json=as_json)
    sha256 = next((item.sha256 for item in found.listed.files if item.path == file), found.listed.sha256)
    terminal.note(f"Verified: sha256 {sha256}.")


def has_left_files(client: Client, job_id: str) -> bool:
    """Returns whether files of the job are stored that are no checkpoints."""
    found = (client.jobs.kept_files(job_id), client.jobs.artifacts(job_id))
    return any(next(iter(files), None) is not None for files in found)


def _chosen(client: Client, named: str) -> Weights:
    """Raises NotFound, which says where the files are that a job without checkpoints left."""
    from torchyard.cli.weights import weights_of
    from torchyard.client.references import without_checkpoints
    from torchyard.contract.errors import NotFound
    from torchyard.contract.spec.initial import MODEL

    try:
        return weights_of(client, named)
    except NotFound:
        if "/" in named or named.startswith(MODEL):
            raise
        job = client.get(named).view
        if next(iter(client.jobs.checkpoints(job.id)), None) is not None:
            raise
        left = f"; list its other files: {output.command()} cp {job.id}:" if has_left_files(client, job.id) else ""
        raise NotFound(f"{without_checkpoints(job.id)}{left}") from None


def _row(checkpoint: CheckpointView, *, with_file: bool, with_measured: bool) -> tuple[str, ...]:
    captured = _written(checkpoint) if checkpoint.source == _CAPTURED else ""
    return (
        checkpoint.id,
        str(checkpoint.step) if checkpoint.step or not captured else "",
        output.metrics(dict(sorted(checkpoint.metrics.items(), key=lambda item: not item[0].startswith("val/")))),
        *((output.metrics(checkpoint.remeasured.metrics if checkpoint.remeasured else {}),) if with_measured else ()),
        "damaged" if checkpoint.damaged else ", ".join(checkpoint.aliases),
        *((captured,) if with_file else ()),
        "" if checkpoint.epoch is None else str(checkpoint.epoch),
        terminal.size(checkpoint.size),
    )


def _written(checkpoint: CheckpointView) -> str:
    """Returns the path of the file or folder that the program wrote."""
    if checkpoint.folder is not None:
        return f"{checkpoint.folder.path}/"
    return checkpoint.files[0].path if checkpoint.files else ""
