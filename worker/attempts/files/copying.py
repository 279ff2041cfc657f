"""Copies what an attempt wrote into the blob store, part by part: checkpoints, and files that nothing describes."""

from collections.abc import Callable, Sequence
import errno
from functools import partial
import os
from pathlib import Path
import time
from typing import BinaryIO, Protocol

from store.worker.records import Blob, BlobStore, BlobWriter, FinishedBlob, HashedFile, LentFile, NewCheckpoint
from torchyard.contract.attempts.records import Manifest, ManifestFile
from torchyard.contract.attempts.rundir import INDEX_FILE, MANIFEST, STATE_FILE, RunDir
from torchyard.contract.errors import DataError
from torchyard.contract.files.paths import check_paths
from torchyard.host.untrusted import open_inside
from worker.attempts.files.manifests import manifest_of
from worker.host.looks import Match, Parts

CHECKPOINT_LIMIT = 1 << 40
"""The default limit of one checkpoint, in bytes."""

_MAX_MANIFEST = 3 << 20  # the most files, with the longest paths, take 2.5 MiB
MIN_FILE_COST = 1 << 20  # opening and syncing a file counts as copying so many bytes


class Copy(Protocol):
    """A complete copy."""

    @property
    def blobs(self) -> Sequence[FinishedBlob]:
        """The finished blobs, which have no names in the store yet."""
        ...

    def discard(self) -> None:
        """Removes every blob that has no name. Raises OSError."""
        ...


class CheckpointCopy:
    """Copies at most what the manifest lists. The blobs have no names in the store before they are put there.

    The caller must call `discard` in the end, which does nothing for blobs that have names.
    """

    def __init__(self, run: RunDir, blobs: BlobStore, name: str, *, limit: int) -> None:
        """Reads the manifest and checks the files. Copies nothing.

        Raises DataError if the files do not match the manifest, or are larger than `limit` or the store's disk. Raises
        OSError, also if that disk has too little free space now.
        """
        self.name = name
        self._blobs = blobs
        self._job = run.job
        self._folder = (*run.checkpoints.relative_to(run.job).parts, name)
        self.described = 0
        """Bytes of its manifest."""
        self.saved_at = 0
        """When its manifest was written, in nanoseconds, or now if that says it was later."""
        self._done: list[FinishedBlob] = []
        self._current: tuple[BinaryIO, BlobWriter] | None = None
        manifest = self._read_manifest()
        self._check_files(manifest.files, limit)
        self._pending = list(manifest.files)
        self._manifest = manifest

    @property
    def checkpoint(self) -> NewCheckpoint:
        """What was copied, once that is all."""
        return NewCheckpoint(self.name, self._manifest, list(self._manifest.files), saved_at=self.saved_at)

    def copy_some(self, limit: int) -> int:
        """Copies about `limit` bytes at most. Returns how much of `limit` is left: if it is not 0, all is copied.

        Raises DataError if a file is not the one in the manifest, and OSError.
        """
        if self._blobs.travel:
            return self._lend(limit)
        while self._pending:
            if limit <= 0:
                return 0
            file = self._pending[0]
            source, copy = self._current = self._current or (self._open(file), self._blobs.create())
            copied = copy.copy_from(source, min(limit, file.size - copy.size))
            limit -= max(copied, MIN_FILE_COST)
            if copied and copy.size < file.size:
                copy.sync()
                continue
            source.close()
            if copy.finish() != Blob(file.sha256, file.size):
                raise DataError(f"its file {file.path} does not match its manifest")
            self._done.append(copy)
            self._current = None
            self._pending.pop(0)
        return max(limit, 1)

    @property
    def blobs(self) -> Sequence[FinishedBlob]:
        """The finished blobs, which have no names in the store yet."""
        return self._done

    def discard(self) -> None:
        """Removes every blob that has no name. Raises OSError."""
        if self._current is not None:
            self._current[0].close()
            self._current[1].discard()
        for copy in self._done:
            copy.discard()

    def _lend(self, limit: int) -> int:
        """Has the files be sent from where they lie: who gets them compares them with the digests in the manifest."""
        if limit < MIN_FILE_COST:
            return 0
        self._done += [
            LentFile(Blob(file.sha256, file.size), opened=partial(self._open, file)) for file in self._pending
        ]
        self._pending = []
        return max(limit - sum(max(file.size, MIN_FILE_COST) for file in self._manifest.files), 1)

    def _read_manifest(self) -> Manifest:
        raw = open_inside(self._job, *self._folder, MANIFEST)
        if raw is None:
            raise DataError("it has no manifest")
        with raw:
            text = raw.read(_MAX_MANIFEST)
            self.saved_at = min(os.fstat(raw.fileno()).st_mtime_ns, time.time_ns())
        self.described = len(text)
        return manifest_of(text)

    def _check_files(self, files: list[ManifestFile], limit: int) -> None:
        paths = [file.path for file in files]
        if STATE_FILE not in paths and INDEX_FILE not in paths:
            raise DataError(f"it has no {STATE_FILE}")
        try:
            check_paths(paths)
        except ValueError as error:
            raise DataError(f"its manifest {error}") from None
        for file in files:
            self._open(file).close()
        size = sum(file.size for file in files)
        require_room(self._blobs, size, limit=limit, what="a checkpoint", copied=not self._blobs.travel)

    def _open(self, file: ManifestFile) -> BinaryIO:
        source = open_inside(self._job, *self._folder, *file.path.split("/"))
        if source is None:
            raise DataError(f"its file {file.path} is missing")
        if os.fstat(source.fileno()).st_size != file.size:
            source.close()
            raise DataError(f"its file {file.path} does not match its manifest")
        return source


class Changed(DataError):
    """The file is not the one that was looked at. It may be copied later."""


class FileCopy:
    """Copies one file as it was when it was looked at. The blob has no name in the store before `publish`.

    The caller must call `discard` in the end, which does nothing after `publish`.
    """

    def __init__(
        self,
        root: Path,
        blobs: BlobStore,
        match: Match,
        *,
        what: str,
        limit: int = CHECKPOINT_LIMIT,
        names: int = 1,
        beside: Callable[[bytes], object] | None = None,
        is_last: bool = False,
    ) -> None:
        """Copies nothing. `what` names the kind of file in errors; `limit` is its largest size in bytes.

        `root`: the folder below which the match was found. `names`: how many it may have. `beside` gets all bytes that
        are copied. `is_last`: nobody changes the file any more, so it is lent where blobs travel. Raises DataError if
        the file cannot be read, is too large or has changed, and OSError.
        """
        self._match = match
        self._blob: Blob | None = None
        lends = is_last and blobs.travel
        require_room(blobs, match.status.st_size, limit=limit, what=what, copied=not lends)

        def opened() -> BinaryIO:
            source = open_inside(root, *match.parts, names=names)
            if source is None:
                raise Changed("it is gone")
            return source

        self._source: BinaryIO = opened()
        try:
            self._check_unchanged()
            self._writer = HashedFile(opened, beside) if lends else blobs.create(beside=beside)
        except BaseException:
            self._source.close()
            raise

    @property
    def match(self) -> Match:
        """The file as it was found."""
        return self._match

    @property
    def parts(self) -> Parts:
        return self._match.parts

    @property
    def written(self) -> BlobWriter | HashedFile:
        """The blob, once all is copied."""
        return self._writer

    @property
    def source(self) -> BinaryIO:
        """The open file."""
        return self._source

    @property
    def copied(self) -> int:
        """Bytes that were copied so far."""
        return self._writer.size

    @property
    def blob(self) -> Blob:
        """What was copied, once that is all."""
        assert self._blob is not None
        return self._blob

    def copy_some(self, limit: int) -> int:
        """Copies `limit` bytes at most. Returns how much of it is left: if not 0, all is copied.

        Raises DataError if the file has changed meanwhile, and OSError.
        """
        size = self._match.status.st_size
        copied = self._writer.copy_from(self._source, min(limit, size - self._writer.size))
        limit -= max(copied, MIN_FILE_COST)
        if self._writer.size < size:
            if limit > 0 or not copied:
                self._check_unchanged()
                raise Changed("it has become shorter")
            self._writer.sync()
            return 0
        self._check_unchanged()
        self._blob = self._writer.finish()
        self._source.close()
        return max(limit, 1)

    @property
    def blobs(self) -> Sequence[FinishedBlob]:
        """The finished blob, which has no name in the store yet."""
        return [self._writer]

    def discard(self) -> None:
        """Removes the blob if it has no name. Raises OSError."""
        self._source.close()
        self._writer.discard()

    def _check_unchanged(self) -> None:
        if identity(os.fstat(self._source.fileno())) != identity(self._match.status):
            raise Changed("it has changed")


def identity(status: os.stat_result) -> tuple[int, ...]:
    """Returns what is another value when a file was replaced or written."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def require_room(blobs: BlobStore, size: int, *, limit: int, what: str, copied: bool = True) -> None:
    """Raises DataError if `what` may never have so many bytes, and OSError if the disk has no room for them now.

    `copied`: whether they need any on this disk.
    """
    space = blobs.disk_space()
    if size > min(limit, space.total):
        raise DataError(f"it has {size} bytes, but {what} may have at most {min(limit, space.total)}")
    if copied and size > space.free:
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} for {size} bytes")
