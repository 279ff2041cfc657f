"""Checks backups, and restores them into an empty data directory and database."""

from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
import os
from pathlib import Path
import shutil

from store import service_identity
from store.backup import dump
from store.backup.contents import BackupManifest, Folder, check_files, file_entry, read_list, read_manifest
from store.blobs.folder import BlobFolder
from store.db.database import Database
from store.db.revision import OLDEST, too_old
from store.notifications import messages, signals
from torchyard.contract.errors import ConfigError, Conflict
from torchyard.host.recordfiles import sync_folder

_NAMES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
_SKIP = "--skip-damaged restores everything else"


def check(source: Path) -> tuple[BackupManifest, list[str]]:
    """Reads the whole backup. Returns its manifest and the blobs that are damaged or missing in it.

    Raises NotFound, ConfigError if its manifest, dump or list is damaged, and OSError.
    """
    folder = Folder(source.absolute())
    manifest = read_manifest(folder)
    check_files(folder, manifest)
    return manifest, [sha256 for sha256 in read_list(folder.list) if not _is_whole(folder.blobs, sha256)]


def restore(
    url: str, data_dir: Path, blobs: BlobFolder, source: Path, *, skip_damaged: bool
) -> tuple[BackupManifest, list[str]]:
    """Restores into the empty database at `url` and the empty `blobs` of `data_dir`. Returns the omitted blobs as well.

    They stay the same service's. The database is restored last; a failure removes everything. Raises Conflict if
    something exists already, ConfigError if the backup is damaged (a blob only without `skip_damaged`) or of another
    kind of database, NotFound, Unavailable and OSError.
    """
    folder = Folder(source.absolute())
    manifest = read_manifest(folder)
    if manifest.revision < OLDEST:
        raise ConfigError(too_old(f"the tables of the backup are at revision {manifest.revision}"))
    if (here := dump.kind(url)) != manifest.database:
        raise ConfigError(f"the backup is one of {_NAMES[manifest.database]}, and this database is {_NAMES[here]}")
    check_files(folder, manifest)
    _check_nothing_in(data_dir, blobs.root)
    dump.check_empty(url)
    with _undone_on_failure(blobs):
        left_out = _copy_blobs(folder, blobs, known=manifest.damaged, skip=skip_damaged)
        if manifest.service is not None:
            blobs.mark(manifest.service)
        dump.load(url, folder.dump, revision=manifest.revision, rows=manifest.rows)
    with closing(Database(url)) as database:
        if manifest.service is not None:
            service_identity.move(database, blobs)
        _drop_outbox(database)
    return manifest, left_out


def _drop_outbox(database: Database) -> None:
    """Gives up the messages that waited when the backup was made: the service has sent most of them since."""
    with database.write("clean_messages") as session:
        signals.forget_all(session)
        messages.give_up_all(session, why="the service was restored from a backup")


def _is_whole(blobs: BlobFolder, sha256: str) -> bool:
    try:
        return file_entry(blobs.path(sha256)).sha256 == sha256
    except FileNotFoundError:
        return False


def _check_nothing_in(*roots: Path) -> None:
    for root in roots:
        for folder, _, files in os.walk(root):
            if files:
                raise Conflict(
                    f"{root} is not empty: it has {Path(folder, files[0])}; restore into a new data directory"
                )


@contextmanager
def _undone_on_failure(blobs: BlobFolder) -> Generator[None]:
    blobs.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for path in blobs.root.iterdir():
            if len(path.name) == 2:
                shutil.rmtree(path)
        blobs.unmark()
        raise


def _copy_blobs(folder: Folder, blobs: BlobFolder, *, known: Sequence[str], skip: bool) -> list[str]:
    """Copies every blob and checks its hash. Returns those that are missing or damaged."""
    missing: list[str] = []
    for sha256 in read_list(folder.list):
        copy = blobs.path(sha256)
        copy.parent.mkdir(mode=0o700, exist_ok=True)
        if folder.blobs.copy_out(sha256, copy):
            continue
        if not skip and sha256 not in known:
            raise ConfigError(f"the backup is damaged: its blob {sha256} is missing or has changed; {_SKIP}")
        missing.append(sha256)
    for path in (*blobs.root.iterdir(), blobs.root):
        if path.is_dir():
            sync_folder(path)
    return missing
