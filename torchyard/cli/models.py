"""The commands `models`: keep checkpoints under a name, list, fetch, share and remove them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from torchyard.cli import output, prompt
from torchyard.cli.arguments import Json, connect
from torchyard.cli.card import card_lines
from torchyard.contract.models.names import ModelRef
from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.contract.models.views import ModelVersionSummary, ModelVersionView, ModelView

models = typer.Typer(
    no_args_is_help=True, help="Save checkpoints as versions of a model.\n\nA version stays when its job is deleted."
)
ModelArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Your model NAME, or OWNER/NAME; NAME@3 is version 3.")
]


@models.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of your model. A new name creates one.")],
    checkpoint: Annotated[
        str,
        typer.Argument(
            metavar="JOB[/REF]",
            help="JOB, JOB/REF (best, latest, epoch-N, step-N or a checkpoint's id) or SWEEP/best.",
        ),
    ],
    *,
    visibility: Annotated[
        Literal["team", "private"] | None,
        typer.Option(help="Who may read a new model: all users, or you. Default: the server's."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Save a checkpoint as the next version of a model.

    JOB means its best checkpoint, else the newest. SWEEP/best means the best trial's. The version stays when the
    checkpoint or the job is deleted. It counts toward your quota of stored bytes.
    """
    from torchyard.client.blocking import ask
    from torchyard.client.references import find_named_checkpoint

    with connect() as client:
        job, found = ask(client, find_named_checkpoint, checkpoint)
        kept = client.models.add(name, job.id, found.id, visibility=visibility)
    output.show(kept, [f"{_named(kept)}  step {kept.step}, {terminal.size(kept.stored_bytes)}"], as_json=as_json)


@models.command("ls")
def ls(
    *,
    owner: Annotated[str | None, typer.Option(metavar="USER", help="Only models of this user.")] = None,
    as_json: Json = False,
) -> None:
    """List models with their newest versions."""
    with connect() as client:
        found = [*client.models.list(owner=owner)]
    headers = ("MODEL", output.OWNER, "NEWEST", "METRICS", "VERSIONS", "SIZE", "VISIBILITY", "ADDED")
    output.show(
        found,
        output.table(headers, map(_row, found)),
        nothing=f"No models. Save a checkpoint as one: {output.command()} models add NAME JOB/best",
        as_json=as_json,
    )


@models.command("show")
def show(model: ModelArgument, *, as_json: Json = False) -> None:
    """Show a model with its versions.

    NAME@VERSION shows one version with its files and model card.
    """
    with connect() as client:
        if ModelRef.parse(model).version is not None:
            version = client.models.version(model)
            return output.show(version, _version_lines(version), as_json=as_json)
        found = client.models.get(model)
        if as_json:
            return output.write_json(found)
        versions = [*client.models.versions(model)]
    return output.show(found, [*_model_lines(found), "", *_table(versions)], as_json=False)


@models.command("download")
def download(
    model: ModelArgument,
    *,
    file: Annotated[str | None, typer.Option(help="Download only this file. Default: state.pt.")] = None,
    to: Annotated[Path, typer.Option("--output", "-o", help="The file or folder to write.")] = Path(),
    as_json: Json = False,
) -> None:
    """Download a version of a model.

    The default is the newest version. The sha256 is verified, and the path printed. Several files become a folder.
    After an interruption, run the same command to continue.
    """
    from torchyard.cli.progress import Transfer

    with connect() as client:
        version = client.models.version(model)
        with Transfer() as transfer:
            path = client.models.download(_named(version), file=file, to=to, on_progress=transfer.show)
    output.show({"path": str(path), "version": version.model_dump(mode="json")}, [str(path)], as_json=as_json)
    sha256 = next((item.sha256 for item in version.files if item.path == file), version.sha256)
    terminal.note(f"Verified: {_named(version)}, sha256 {sha256}.")


@models.command("share")
def share(
    model: ModelArgument,
    *,
    private: Annotated[bool, typer.Option("--private", help="Stop sharing.")] = False,
    as_json: Json = False,
) -> None:
    """Share a model with all users of the server."""
    with connect() as client:
        changed = client.models.share(model, "private" if private else "team")
    output.show(changed, [f"{changed.owner}/{changed.name}  {changed.visibility}"], as_json=as_json)


@models.command("rm")
def rm(
    model: ModelArgument,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: Json = False,
) -> None:
    """Delete a model, or one version of it.

    Without @VERSION, deletes all versions. Version numbers are never reused.
    """
    with connect() as client:
        one = ModelRef.parse(model).version is not None
        found = client.models.version(model) if one else client.models.get(model)
        named = str(ModelRef(found.owner, found.name, ModelRef.parse(model).version))
        if not yes:
            _confirm(named, found)
        client.models.remove(named)
    output.show({"deleted": [named]}, [f"{named}  deleted"], as_json=as_json)


def _confirm(named: str, found: ModelVersionView | ModelView) -> None:
    prompt.confirm("Delete it with its files?", [f"  {named}  {terminal.size(found.stored_bytes)}"])


def _named(version: ModelVersionSummary) -> str:
    return str(ModelRef(version.owner, version.name, version.version))


def _row(model: ModelView) -> tuple[str, ...]:
    newest = model.newest
    return (
        model.name,
        model.owner,
        f"@{newest.version}",
        _metrics(newest),
        str(model.versions),
        terminal.size(model.stored_bytes),
        model.visibility,
        terminal.ago(newest.created_at),
    )


def _model_lines(model: ModelView) -> list[str]:
    rows = (
        ("model", f"{model.owner}/{model.name}"),
        ("visible to", model.visibility),
        ("size", terminal.size(model.stored_bytes)),
    )
    return [f"{label:<11}{text}" for label, text in rows]


def _table(versions: list[ModelVersionSummary]) -> list[str]:
    headers = ("VERSION", "METRICS", "JOB", "TRAINER", "EPOCH", "STEP", "SIZE", "ADDED")
    rows = [
        (
            f"@{item.version}",
            _metrics(item),
            item.job_id or "",
            item.trainer,
            "" if item.epoch is None else str(item.epoch),
            str(item.step),
            terminal.size(item.stored_bytes),
            terminal.ago(item.created_at),
        )
        for item in versions
    ]
    return output.table(headers, rows)


def _version_lines(version: ModelVersionView) -> list[str]:
    epoch = "" if version.epoch is None else f"epoch {version.epoch}, "
    rows = (
        ("model", _named(version)),
        ("trainer", version.trainer),
        ("job", f"{version.job_id}/{version.checkpoint_id}" if version.job_id else ""),
        ("at", f"{epoch}step {version.step}"),
        ("metrics", output.metrics(version.metrics)),
        ("added", output.moment(version.created_at)),
    )
    lines = [f"{label:<11}{terminal.plain(text)}" for label, text in rows if text]
    files = output.table(("FILE", "SIZE"), [(file.path, terminal.size(file.size)) for file in version.files])
    card = card_lines(version.card or {})
    return [*lines, "", *files, *(("", *card) if len(card) > 1 else ())]


def _metrics(version: ModelVersionSummary) -> str:
    return output.metrics(dict(sorted(version.metrics.items(), key=lambda item: not item[0].startswith("val/"))))
