"""The contents of a backup: a folder with a dump of the database, the blobs that it refers to, and a manifest.

manifest.json    list of the files with their digests; written last, so a backup with a manifest is complete
database.dump    SQLite: a database file; PostgreSQL: pg_dump's custom format
blobs.txt        `sha256 size` of each blob that the dumped database refers to
blobs/           those blobs, laid out as in the data directory
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
import hashlib
from io import BufferedWriter
import os
from pathlib import Path
import re
from typing import Literal

from store.blobs.folder import BlobFolder
from torchyard.contract.attempts.records import ManifestFile
from torchyard.contract.errors import ConfigError, NotFound
from torchyard.contract.wire.codec import Record
from torchyard.host.recordfiles import read_record

_BLOB = re.compile(r"([0-9a-f]{64}) ([0-9]{1,18})")


@dataclass(frozen=True, kw_only=True)
class BackupManifest(Record):
    format: Literal[1] = 1
    made_at: datetime
    database: Literal["sqlite", "postgresql"]
    revision: str
    """The migration of the tables."""
    rows: dict[str, int]
    """Number of rows of each table."""
    service: str | None = None
    """The id of the service; None of a database that knew no folder of blobs yet."""
    blobs: int
    bytes: int
    """Size of all blobs together."""
    damaged: list[str] = field(default_factory=list[str])
    """Blobs that were missing or of the wrong size in the store; the backup does not contain them."""
    files: list[ManifestFile]
    """The dump and the list of blobs."""


@dataclass(frozen=True)
class Folder:
    """The paths of one backup."""

    root: Path

    @property
    def manifest(self) -> Path:
        return self.root / "manifest.json"

    @property
    def unfinished(self) -> Path:
        """Exists while the backup is being made."""
        return self.root / "unfinished"

    @property
    def dump(self) -> Path:
        return self.root / "database.dump"

    @property
    def list(self) -> Path:
        return self.root / "blobs.txt"

    @property
    def blobs(self) -> BlobFolder:
        return BlobFolder(self.root / "blobs")


def read_manifest(folder: Folder) -> BackupManifest:
    """Reads the manifest. Raises NotFound without a complete backup, ConfigError for an unknown format."""
    try:
        manifest = read_record(folder.manifest, BackupManifest)
    except ValueError:
        raise ConfigError(f"{folder.manifest} is not the manifest of a backup that this version can read") from None
    if manifest is None:
        why = "the backup there was never finished" if folder.unfinished.exists() else "it has no manifest.json"
        raise NotFound(f"{folder.root} holds no complete backup: {why}")
    return manifest


def check_files(folder: Folder, manifest: BackupManifest) -> None:
    """Checks the dump and the list of blobs. Raises ConfigError if they differ from the manifest."""
    for file in manifest.files:
        try:
            entry = file_entry(folder.root / file.path)
        except FileNotFoundError:
            entry = None
        if entry != file:
            raise ConfigError(f"the backup is damaged: {folder.root / file.path} does not match its manifest")


def file_entry(path: Path) -> ManifestFile:
    """Returns the file's name, size and sha256. Raises OSError."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return ManifestFile(path=path.name, size=os.fstat(file.fileno()).st_size, sha256=digest)


def write_list(path: Path, blobs: Mapping[str, int]) -> None:
    """Writes the list of blobs; durable when this returns. Raises OSError."""
    with create_private(path) as file:
        file.writelines(f"{sha256} {size}\n".encode() for sha256, size in sorted(blobs.items()))
        file.flush()
        os.fsync(file.fileno())


def read_list(path: Path) -> dict[str, int]:
    """Reads sizes by sha256. Raises ConfigError and OSError."""
    return dict(_parsed(path.read_text(encoding="ascii").splitlines(), path))


def create_private(path: Path) -> BufferedWriter:
    """Creates a file that only its owner may read, and opens it for writing. Raises OSError."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


def _parsed(lines: Iterable[str], path: Path) -> Iterable[tuple[str, int]]:
    for line in lines:
        match = _BLOB.fullmatch(line)
        if match is None:
            raise ConfigError(f"{path} has a line without a blob")
        yield match[1], int(match[2])
