"""A checkpoint of an attempt on its way into the blob store, a part of it at a time."""

import errno
import os
from typing import BinaryIO

from store.blobs import Blob, Blobs, BlobWriter
from store.rows.checkpoints import NewCheckpoint
from torchyard.contract.errors import DataError
from torchyard.contract.records import Manifest, ManifestFile
from torchyard.contract.rundir import MANIFEST, STATE_FILE, RunDir
from torchyard.contract.untrusted import open_inside

CHECKPOINT_LIMIT = 1 << 40
"""Bytes of one checkpoint, by default."""

_MAX_MANIFEST = 1 << 20
_FILE_COST = 1 << 20  # bytes for which the opening and syncing of one file count


class CheckpointCopy:
    """Takes at most what the manifest lists. Its blobs have no name in the store before `publish`.

    Whoever makes one must `discard` it in the end, which does nothing after `publish`.
    """

    def __init__(self, run: RunDir, blobs: Blobs, name: str, *, limit: int) -> None:
        """Reads the manifest and looks at the files. Copies nothing.

        Raises DataError where they do not fit together or are larger than `limit` or the store's disk, and OSError,
        also where that disk has no room now.
        """
        self.name = name
        self._blobs = blobs
        self._job = run.job
        self._folder = (*run.checkpoints.relative_to(run.job).parts, name)
        self._done: list[BlobWriter] = []
        self._current: tuple[BinaryIO, BlobWriter] | None = None
        manifest = self._manifest()
        self._check(manifest.files, limit)
        self._pending = list(manifest.files)
        self.checkpoint = NewCheckpoint(name, manifest, list(manifest.files))

    def go_on(self, limit: int) -> int:
        """Copies at most `limit` bytes or so. Returns how much of `limit` is left; all is copied where that is not 0.

        Raises DataError where a file is not the one in the manifest, and OSError.
        """
        while self._pending:
            if limit <= 0:
                return 0
            file = self._pending[0]
            source, copy = self._current = self._current or (self._open(file), self._blobs.create())
            taken = copy.copy_from(source, min(limit, file.size - copy.size))
            limit -= max(taken, _FILE_COST)
            if taken and copy.size < file.size:
                copy.sync()
                continue
            source.close()
            if copy.finish() != Blob(file.sha256, file.size):
                raise DataError(f"its file {file.path} is not the one in its manifest")
            self._done.append(copy)
            self._current = None
            self._pending.pop(0)
        return max(limit, 1)

    def publish(self) -> None:
        """Names the blobs. To be called while `Blobs.sharing` is held until the commit. Raises OSError."""
        for copy in self._done:
            copy.publish()

    def discard(self) -> None:
        """Leaves nothing behind that has no name. Raises OSError."""
        if self._current is not None:
            self._current[0].close()
            self._current[1].discard()
        for copy in self._done:
            copy.discard()

    def _manifest(self) -> Manifest:
        raw = open_inside(self._job, *self._folder, MANIFEST)
        if raw is None:
            raise DataError("it has no manifest")
        with raw:
            text = raw.read(_MAX_MANIFEST)
        try:
            return Manifest.from_json(text)
        except ValueError:
            raise DataError("its manifest cannot be read") from None

    def _check(self, files: list[ManifestFile], limit: int) -> None:
        paths = {file.path for file in files}
        if STATE_FILE not in paths:
            raise DataError(f"it has no {STATE_FILE}")
        if len(paths) < len(files):
            raise DataError("its manifest lists a file twice")
        for file in files:
            self._open(file).close()
        size = sum(file.size for file in files)
        space = self._blobs.disk_space()
        if size > min(limit, space.total):
            raise DataError(f"its {size} bytes are more than the {min(limit, space.total)} that a checkpoint may have")
        if size > space.free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._blobs.root))

    def _open(self, file: ManifestFile) -> BinaryIO:
        source = open_inside(self._job, *self._folder, *file.path.split("/"))
        if source is None:
            raise DataError(f"its file {file.path} is missing")
        if os.fstat(source.fileno()).st_size != file.size:
            source.close()
            raise DataError(f"its file {file.path} is not the one in its manifest")
        return source
