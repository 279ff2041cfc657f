"""Makes a backup while the service runs."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
import errno
import os
from pathlib import Path
import shutil

from store import service_identity
from store.backup import dump
from store.backup.contents import BackupManifest, Folder, file_entry, write_list
from store.blobs.folder import BlobFolder
from torchyard.contract.errors import Conflict, NotFound
from torchyard.host.recordfiles import sync_folder, write_record

_CANNOT_LINK = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS}


def make(url: str, blobs: BlobFolder, target: Path) -> BackupManifest:
    """Makes a backup of the database at `url` and of its blobs in `target`, which is absent or empty.

    Removes everything written if it fails. Raises Conflict, NotFound, Unavailable, OSError and ConfigError, also if the
    blobs are not the service's.
    """
    folder = Folder(target.absolute())
    with _filling(folder):
        # No blob is removed from before the snapshot until all its blobs are copied.
        with dump.all_held(url) as go_on:
            dumped = dump.dump(url, folder.dump)
            if dumped.service is not None:
                service_identity.check(dumped.service, blobs)
            damaged = _copy_blobs(blobs, dumped.blobs, folder.blobs, go_on=go_on)
        if damaged and len(damaged) == len(dumped.blobs):
            raise NotFound(
                f"{blobs.root} has none of the {len(damaged)} blobs that the database lists: is it the right one?"
            )
        write_list(folder.list, dumped.blobs)
        manifest = BackupManifest(
            made_at=datetime.now(UTC),
            database=dump.kind(url),
            revision=dumped.revision,
            rows=dumped.rows,
            service=dumped.service.id if dumped.service is not None else None,
            blobs=len(dumped.blobs),
            bytes=sum(dumped.blobs.values()),
            damaged=damaged,
            files=[file_entry(folder.dump), file_entry(folder.list)],
        )
        sync_folder(folder.root)
        write_record(folder.root.resolve() / folder.manifest.name, manifest)
    return manifest


@contextmanager
def _filling(folder: Folder) -> Generator[None]:
    made = not folder.root.exists()
    folder.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    sync_folder(folder.root.parent)
    _check_empty(folder)
    try:
        folder.unfinished.touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        raise Conflict(f"another backup is being made in {folder.root}") from None
    try:
        yield
    except BaseException:
        _remove(folder)
        if made:
            folder.root.rmdir()
        raise
    folder.unfinished.unlink()


def _check_empty(folder: Folder) -> None:
    if folder.manifest.exists():
        raise Conflict(f"{folder.root} already has a backup: give a new folder")
    if folder.unfinished.exists():
        raise Conflict(
            f"{folder.root} holds a backup that is being made or was never finished: remove it, or use another"
        )
    if any(path.name != "lost+found" for path in folder.root.iterdir()):
        raise Conflict(f"{folder.root} is not empty")


def _remove(folder: Folder) -> None:
    """Removes what this backup has written, the mark last."""
    shutil.rmtree(folder.blobs.root, ignore_errors=True)
    for path in folder.root.iterdir():
        if path.is_file() and path != folder.unfinished:
            path.unlink()
    folder.unfinished.unlink()


def _copy_blobs(
    source: BlobFolder, wanted: Mapping[str, int], target: BlobFolder, *, go_on: Callable[[], object]
) -> list[str]:
    """Links the blobs, or copies them if linking is not possible. Returns those that are missing or damaged."""
    target.root.mkdir(mode=0o700)
    damaged: list[str] = []
    links = True
    for sha256, size in sorted(wanted.items()):
        go_on()
        blob, copy = source.path(sha256), target.path(sha256)
        copy.parent.mkdir(mode=0o700, exist_ok=True)
        if not blob.is_file() or blob.stat().st_size != size:
            damaged.append(sha256)
            continue
        links = links and _link(blob, copy)
        if not links and not source.copy_out(sha256, copy, check=go_on):
            damaged.append(sha256)
    for folder in (*target.root.iterdir(), target.root):
        sync_folder(folder)
    return damaged


def _link(blob: Path, target: Path) -> bool:
    """Links a file. Returns False if the file systems do not support that."""
    try:
        os.link(blob, target)
    except OSError as error:
        if error.errno in _CANNOT_LINK:
            return False
        raise
    return True
