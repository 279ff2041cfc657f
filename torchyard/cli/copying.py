"""The command `cp`: copies what a job has stored to this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
import hashlib
from pathlib import Path
import shutil
import sys
import tempfile
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli import output
from torchyard.cli.arguments import Json, connect
from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.client import Client
    from torchyard.client.download import OnProgress
    from torchyard.contract.files.views import ArtifactView, CheckpointFile, CheckpointView
    from torchyard.contract.jobs.views import JobView

_ARTIFACTS, _CHECKPOINTS = "artifacts", "checkpoints"
_NOTHING_YET = "No files yet. A job's files are stored when it finishes; files that --keep names also while it runs."
_LEFT_NOTHING = "No files are stored. Its log messages name files that were not kept."


@dataclass(frozen=True)
class _Source:
    """A file of a job. `checkpoint` is None for an artifact and for a kept file."""

    file: ArtifactView | CheckpointFile
    checkpoint: str | None = None
    kept: bool = False


def cp(
    source: Annotated[
        str,
        typer.Argument(
            metavar="JOB:PATH",
            help="JOB:PATH, such as digits:artifacts/loss.png, digits:checkpoints/best/state.pt or a folder.",
        ),
    ],
    dest: Annotated[
        str | None, typer.Argument(metavar="DEST", help="The file or folder to write; - is stdout.", show_default=False)
    ] = None,
    *,
    as_json: Json = False,
) -> None:
    """Copy a job's files to this machine.

    `torchyard cp JOB:` lists them. Each file's sha256 is verified. After an interruption, run the same command to
    continue. Existing files stay.
    """
    job, found, path = source.partition(":")
    if not (job and found):
        raise typer.BadParameter(f"{source!r} is not JOB:PATH, such as {source or 'digits'}:artifacts")
    names = [name for name in path.split("/") if name not in {"", "."}]
    in_work = path.startswith("./")
    if names and dest is None:
        raise typer.BadParameter(f"give a file or folder to write {source} to, such as .")
    with connect() as client:
        found_job = client.get(job)
        job_id = found_job.id
        if not names:
            return _list(client, found_job.view, as_json=as_json)
        assert dest is not None
        base, sources = _sources(client, job_id, names, in_work=in_work)
        if dest == "-":
            return _write_out(client, job_id, base, sources)
        targets = _targets(base, sources, Path(dest), name=names[-1])
        _check(base, targets, Path(dest))
        if not _copied_at_once(client, job_id, names, Path(dest)):
            _copy(client, job_id, base, targets)
    paths = [str(target) for target, _ in targets]
    return output.show({"paths": paths}, paths, as_json=as_json)


def _list(client: Client, job: JobView, *, as_json: bool) -> None:
    job_id = job.id
    artifacts, checkpoints = [*client.jobs.artifacts(job_id)], [*client.jobs.checkpoints(job_id)]
    kept = [*client.jobs.kept_files(job_id)]
    named = [(kept_path(item.path), item) for item in sorted(kept, key=lambda item: item.path)]
    named += [(f"{_ARTIFACTS}/{item.path}", item) for item in sorted(artifacts, key=lambda item: item.path)]
    rows = [(name, terminal.size(item.size), str(item.attempt), terminal.ago(item.created_at)) for name, item in named]
    rows += [
        (
            f"{_CHECKPOINTS}/{(*item.aliases, item.id)[0]}/{path}",
            terminal.size(size),
            str(item.attempt),
            terminal.ago(item.created_at),
        )
        for item in checkpoints
        for path, size in _listed(item)
    ]
    found = {"artifacts": artifacts, "checkpoints": checkpoints, "kept": kept}
    lines = output.table(("PATH", "SIZE", "ATTEMPT", "STORED"), rows) if rows else ()
    notes = () if rows else (_LEFT_NOTHING if job.state.terminal else _NOTHING_YET,)
    output.show(found, lines, notes=notes, as_json=as_json)


def kept_path(path: str) -> str:
    """Returns how a kept file is named: with `./` in front where it would look like another file."""
    return f"./{path}" if path.partition("/")[0] in {_ARTIFACTS, _CHECKPOINTS} else path


def _listed(item: CheckpointView) -> list[tuple[str, int]]:
    """Returns the path and the size of each file; of very many files those of their folder."""
    if item.files_omitted:
        return [(f"{item.folder.path}/".lstrip("/") if item.folder else "", item.size)]
    return [(file.path, file.size) for file in item.files]


def _sources(client: Client, job_id: str, names: Sequence[str], *, in_work: bool) -> tuple[str, list[_Source]]:
    """Returns the files that the path names, and the path below which they are: empty, or that of the file itself.

    `in_work`: whether the path is of the working folder, whatever its name. Raises NotFound.
    """
    from torchyard.contract.errors import NotFound

    kind, *rest = names
    if in_work or kind not in {_ARTIFACTS, _CHECKPOINTS}:
        below = "/".join(names)
        found = [_Source(item, kept=True) for item in client.jobs.kept_files(job_id, path=below)]
        if not found:
            raise NotFound(
                f"job {job_id} has no stored file {below!r}; to list its files: {output.command()} cp {job_id}:"
            )
        return below, found
    if kind == _ARTIFACTS:
        below = "/".join(rest)
        found = [_Source(item) for item in client.jobs.artifacts(job_id, path=below or None)]
        if not found:
            raise NotFound(f"job {job_id} has no artifact {below!r}" if below else f"job {job_id} has no artifacts yet")
        return below, found
    if rest:
        checkpoint, below = client.jobs.checkpoint(job_id, rest[0]), "/".join(rest[1:])
        files = [file for file in checkpoint.files if not below or file.path == below or _is_below(file.path, below)]
        if not files:
            has = ", ".join(file.path for file in checkpoint.files)
            raise NotFound(f"checkpoint {checkpoint.id} has no file {below!r}; it has {has}")
        return below, [_Source(file, checkpoint.id) for file in files]
    raise typer.BadParameter("give a checkpoint, such as checkpoints/best/state.pt")


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(f"{folder}/")


def _targets(base: str, sources: Sequence[_Source], dest: Path, *, name: str) -> list[tuple[Path, _Source]]:
    """Returns the target of each file: `dest` or a path in it, as `cp -r` chooses it."""
    inside = dest / name if dest.is_dir() else dest
    return [
        (inside if source.file.path == base else inside / source.file.path[len(base) :].lstrip("/"), source)
        for source in sorted(sources, key=lambda source: source.file.path)
    ]


def _check(base: str, targets: Sequence[tuple[Path, _Source]], dest: Path) -> None:
    """Checks, before anything is written, that every file lies at or below `dest`. Raises ServerError and Conflict."""
    from torchyard.contract.errors import Conflict, ServerError
    from torchyard.contract.files.paths import is_artifact_path

    root = dest.resolve()
    for target, source in targets:
        path = source.file.path
        if not (is_artifact_path(path) and (not base or path == base or _is_below(path, base))):
            raise ServerError(f"the server lists the unsafe path {path!r}; nothing was copied")
        folder = target.parent.resolve()
        if target != dest and not folder.is_relative_to(root):
            raise Conflict(f"{target} is outside {dest}, behind a link; nothing was copied")
        if target.is_dir():
            raise Conflict(f"{target} is a folder; nothing was copied")


def _copied_at_once(client: Client, job_id: str, names: Sequence[str], dest: Path) -> bool:
    """Copies a whole checkpoint in several files to a new folder, in one request. Returns whether it was one."""
    from torchyard.cli.progress import Transfer

    if len(names) != 2 or names[0] != _CHECKPOINTS:
        return False
    target, checkpoint = dest / names[1] if dest.is_dir() else dest, client.jobs.checkpoint(job_id, names[1])
    if checkpoint.folder is None or target.exists():
        return False
    with Transfer(terminal.plain(target.name)) as transfer:
        client.jobs.download(job_id, checkpoint.id, to=target, on_progress=transfer.show)
    return True


def _copy(client: Client, job_id: str, base: str, targets: Sequence[tuple[Path, _Source]]) -> None:
    from torchyard.cli.progress import Transfer

    for target, source in targets:
        if _is_there(target, source.file):
            continue
        if source.file.path != base:  # it lies in the folder that is copied
            target.parent.mkdir(parents=True, exist_ok=True)
        with Transfer(terminal.plain(target.name)) as transfer:
            _fetch(client, job_id, source, target, transfer.show)


def _fetch(client: Client, job_id: str, source: _Source, target: Path, show: OnProgress | None = None) -> None:
    if source.checkpoint is not None:
        client.jobs.download(job_id, source.checkpoint, file=source.file.path, to=target, on_progress=show)
    else:
        client.jobs.download_artifact(job_id, source.file.path, kept=source.kept, to=target, on_progress=show)


def _is_there(target: Path, file: ArtifactView | CheckpointFile) -> bool:
    """Returns whether an earlier copy has written the file."""
    if not target.is_file() or target.stat().st_size != file.size:
        return False
    with target.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest() == file.sha256


def _write_out(client: Client, job_id: str, base: str, sources: Sequence[_Source]) -> None:
    """Writes one file to stdout, once all of it has arrived and is verified."""
    if [source.file.path for source in sources] != [base]:
        raise typer.BadParameter("this is a folder: only one file can be written to stdout")
    with tempfile.TemporaryDirectory(prefix="torchyard-") as folder:
        whole = Path(folder) / "file"
        _fetch(client, job_id, sources[0], whole)
        with whole.open("rb") as content:
            shutil.copyfileobj(content, sys.stdout.buffer)
        sys.stdout.buffer.flush()
