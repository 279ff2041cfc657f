"""Publishes a checkpoint: it is whole, or it is not there."""

from collections.abc import Callable, Mapping
from dataclasses import replace
import hashlib
import io
import os
from pathlib import Path
import shutil
from typing import Any, BinaryIO, cast

from torchyard.contract.attempts.records import Manifest, ManifestFile
from torchyard.contract.attempts.rundir import MANIFEST
from torchyard.contract.files.paths import check_paths
from torchyard.host.failpoints import failpoint
from torchyard.host.recordfiles import sync_folder, write_record

Content = bytes | Callable[[BinaryIO], object]
"""The bytes of a file, or a function that writes them into an open file."""


def publish(
    folder: Path,
    name: str,
    files: Mapping[str, Content],
    manifest: Manifest,
) -> None:
    """Writes the checkpoint `name` in `folder`: its `files`, and last the `manifest`, which then lists them.

    An existing checkpoint of that name is kept as it is. Raises OSError, ValueError for file names that a manifest
    does not allow, and what a function in `files` raises. Nothing is left of the checkpoint then.
    """
    if (folder / name).exists():
        return
    check_paths(files.keys())
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{name}.{os.getpid()}"
    try:
        temporary.mkdir()
        written = [write_file(temporary, path, content) for path, content in files.items()]
        listed = replace(manifest, files=written)
        give_name(temporary, folder / name, listed)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError) and error.filename is None:  # a write does not say where
            error.filename = str(folder)
        raise


def give_name(temporary: Path, final: Path, manifest: Manifest) -> None:
    """Writes the manifest of the files in a temporary folder, which then is the checkpoint `final`. Raises OSError."""
    failpoint("checkpoint.manifest")
    write_record(temporary / MANIFEST, manifest)
    failpoint("checkpoint.rename")
    temporary.rename(final)
    failpoint("checkpoint.renamed")
    sync_folder(final.parent)


def write_file(folder: Path, name: str, content: Content) -> ManifestFile:
    """Writes a new file in `folder`, durable when this returns, and returns its entry of a manifest.

    Raises OSError, ValueError for a name that a manifest does not allow, and what `content` raises.
    """
    # Checked before anything is created: the name must not lead out of the folder.
    unhashed = ManifestFile(path=name, size=0, sha256="0" * 64)
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb", buffering=0) as file:
        hashed = _Hashed(file)
        if isinstance(content, bytes):
            hashed.write(content)
        else:
            _fill(hashed, content)
        failpoint("checkpoint.fsync")
        os.fsync(file.fileno())
    if path.parent != folder:
        sync_folder(path.parent)
    return replace(unhashed, size=hashed.size, sha256=hashed.digest.hexdigest())


class _Hashed(io.RawIOBase):
    """Hashes a file while it is written."""

    def __init__(self, file: io.FileIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.size = 0
        self.failure: OSError | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        left = whole = memoryview(data).cast("B")
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            self.failure = error
            raise
        self.digest.update(whole)
        self.size += len(whole)
        return len(whole)


def _fill(file: _Hashed, content: Callable[[BinaryIO], object]) -> None:
    try:
        content(cast(BinaryIO, file))
    except Exception as error:
        if file.failure is None or error is file.failure:
            raise
        raise file.failure from error  # torch.save hides a full disk behind an error about positions
